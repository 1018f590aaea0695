"""A model pair of any size whose acceptance is known by construction: nothing is trained.

Real Llama weights do all the work of a real model, but embedding and output head are made so that
the next token follows from the last one alone: every ordinary token has one successor, and all of
them form one cycle, in which nothing repeats. The draft knows the same cycle, except that a share
of its tokens, `1 - acceptance`, has a wrong successor. The right one leads by so much that at
temperature 1 it is drawn almost surely: acceptance is the same at both.

The time of a round is real, and so is the share accepted; the text means nothing, and copying from
its own past finds nothing in it. Knows nothing of who measures.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from outrider.actors.errors import InvalidConfig

HEAD_DIM = 64
BRANCH = 0.1  # of the usual size is what a layer adds, so that the last token still decides
LEAD = 32.0  # the successor's logit; others are about as wide as LEAD / √width
SKIP = 17  # places in the cycle from the right successor to the draft's wrong one
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Of a Llama. Raises InvalidConfig."""

    width: int
    num_layers: int

    def __post_init__(self) -> None:
        if self.width < HEAD_DIM or self.width % HEAD_DIM or self.num_layers < 1:
            raise InvalidConfig(
                f"Got a model of {self}, expected WIDTHxLAYERS with a width that is a multiple "
                f"of {HEAD_DIM} and at least one layer"
            )

    def __str__(self) -> str:
        return f"{self.width}x{self.num_layers}"

    @classmethod
    def read(cls, text: str) -> "ModelSize":
        """From WIDTHxLAYERS. Raises InvalidConfig."""
        width, _, layers = text.partition("x")
        if not (width.isdecimal() and layers.isdecimal()):
            raise InvalidConfig(f"Got a model of {text!r}, expected WIDTHxLAYERS, as 1024x16")
        return cls(int(width), int(layers))

    def config(self, vocab_size: int, **special: int) -> LlamaConfig:
        """Half as many KV heads as heads, where there is an even number."""
        num_heads = self.width // HEAD_DIM
        return LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=self.width,
            intermediate_size=-(-self.width * 11 // (4 * HEAD_DIM)) * HEAD_DIM,
            num_hidden_layers=self.num_layers,
            num_attention_heads=num_heads,
            num_key_value_heads=num_heads // 2 if num_heads % 2 == 0 else num_heads,
            max_position_embeddings=2048,
            tie_word_embeddings=False,
            **special,
        )


@dataclass(frozen=True, slots=True)
class PairPlan:
    """What is made; the same plan makes the same weights. Raises InvalidConfig.

    The sizes are about 200M and 15M parameters: reading the target's weights once takes longer
    than all else that a round does, and the draft is shallow, as a draft should be.
    """

    target: ModelSize = ModelSize(1024, 16)
    draft: ModelSize = ModelSize(640, 2)
    acceptance: float = 0.75  # chance of a drafted token, if those before it were accepted
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.acceptance <= 1:
            raise InvalidConfig(f"Got acceptance={self.acceptance}, expected 0 ≤ acceptance ≤ 1")


def build(folder: Path, plan: PairPlan, tokenizer: Path) -> tuple[int, int]:
    """Write folder/target and folder/draft; their numbers of parameters.

    tokenizer: a model directory whose tokenizer both get. Its chat template is left out: all chats
    would end alike, and their answers be one text. Raises InvalidConfig.
    """
    loaded = AutoTokenizer.from_pretrained(tokenizer, local_files_only=True)
    vocab_size = max(loaded.get_vocab().values()) + 1
    ordinary = torch.tensor(sorted(set(range(vocab_size)) - set(loaded.all_special_ids)))
    generator = torch.Generator().manual_seed(plan.seed)
    cycle = ordinary[torch.randperm(len(ordinary), generator=generator)]
    is_wrong = torch.rand(len(cycle), generator=generator) >= plan.acceptance
    special = {name: _id(loaded, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    counts = []
    for name, size, skips in (
        ("target", plan.target, torch.zeros_like(is_wrong)),
        ("draft", plan.draft, is_wrong),
    ):
        model = _model(size.config(vocab_size, **special), cycle, skips, generator)
        path = folder / name
        if path.exists():
            raise InvalidConfig(f"Got {path}, which exists, expected a new directory")
        model.save_pretrained(path)
        for file in TOKENIZER_FILES:
            shutil.copy(tokenizer / file, path / file)
        counts.append(sum(parameter.numel() for parameter in model.parameters()))
    return counts[0], counts[1]


def _id(tokenizer: Any, name: str) -> int:
    found = getattr(tokenizer, name)
    return int(found if found is not None else tokenizer.all_special_ids[0])


@torch.no_grad()
def _model(
    config: LlamaConfig, cycle: torch.Tensor, skips: torch.Tensor, generator: torch.Generator
) -> LlamaForCausalLM:
    """After cycle[i] comes cycle[i + 1], or one further on where it `skips`."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        model = LlamaForCausalLM(config)
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.mul_(BRANCH)
        layer.mlp.down_proj.weight.mul_(BRANCH)
    embedding, head = model.model.embed_tokens.weight, model.lm_head.weight
    embedding.normal_(generator=generator)
    # The last norm makes a hidden state √width long, so along its own direction it weighs LEAD.
    directions = embedding / embedding.norm(dim=-1, keepdim=True)
    places = torch.arange(len(cycle))
    successors = cycle[(places + 1 + SKIP * skips) % len(cycle)]
    head.zero_().index_add_(0, successors, directions[cycle] * LEAD / config.hidden_size**0.5)
    model.generation_config.max_length = config.max_position_embeddings
    return model.to(torch.bfloat16)
