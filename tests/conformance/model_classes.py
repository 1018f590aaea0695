"""Every causal language model of transformers, made tiny and random: is it served as transformers
computes it, or refused in a sentence?

    PYTHONPATH=tests python tests/conformance/model_classes.py [NAME ...]

A line a class, then the counts. Ends with 1 if one was served another text, or failed otherwise
than by an error of ours. A class that transformers itself cannot make from our small numbers, or
run, is listed as such.
"""

import contextlib
import io
import multiprocessing
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from outrider.actors.errors import OutriderError
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.model_loader import load_model
from outrider.actors.runner.runner import Runner

VOCAB_SIZE, CONTEXT, NUM_PROMPT, NUM_NEW = 512, 256, 12, 24
LIMIT_S = 120.0
SMALL = {
    "vocab_size": VOCAB_SIZE,
    "vocab_size_per_layer_input": VOCAB_SIZE,
    "max_position_embeddings": CONTEXT,
    "n_positions": CONTEXT,
    "n_ctx": CONTEXT,
    "hidden_size": 64,
    "embedding_size": 64,
    "n_embd": 64,
    "d_model": 64,
    "word_embed_proj_dim": 64,
    "intermediate_size": 96,
    "ffn_dim": 96,
    "d_ff": 96,
    "decoder_ffn_dim": 96,
    "encoder_ffn_dim": 96,
    "ffn_hidden_size": 96,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_hidden_layers": 3,
    "n_layer": 3,
    "num_layers": 3,
    "n_layers": 3,
    "decoder_layers": 3,
    "encoder_layers": 1,
    "num_attention_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "num_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_kv_heads": 2,
    "head_dim": 16,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "sliding_window": 8,
    "local_attention_window": 8,
    "first_k_dense_replace": 1,
    "rotary_dim": 8,
    "hidden_size_per_layer_input": 16,
    "num_kv_shared_layers": 0,
}
# Tried in turn until transformers can run it: names left as they are, and other numbers.
OTHERWISE = (
    ((), {}),
    ((), {"num_key_value_heads": 4}),
    (("head_dim",), {"num_key_value_heads": 4}),
    ((), {"num_experts_per_tok": 1, "moe_k": 1}),
    ((), {"num_hidden_layers": 6, "num_layers": 6}),
    (("num_hidden_layers", "num_layers", "moe_num_experts", "num_experts"), {}),
)
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@dataclass(frozen=True)
class Outcome:
    """What became of one class."""

    kind: str  # "served" | "refused" | "unmade" | "differs" | "failed"
    words: str = ""


def main(names: list[str]) -> int:
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    kinds: Counter[str] = Counter()
    for model_type, class_name in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items()):
        if names and model_type not in names and class_name not in names:
            continue
        began = time.monotonic()
        outcome = apart(model_type)
        kinds[outcome.kind] += 1
        elapsed_s = time.monotonic() - began
        words = " ".join(outcome.words.split())[:220]
        print(f"{outcome.kind:8} {class_name:40} {elapsed_s:5.1f} s  {words}", flush=True)
    print(dict(kinds))
    return 1 if kinds["differs"] or kinds["failed"] else 0


def apart(model_type: str) -> Outcome:
    """In a process of its own, which may end as it likes."""
    ours, its = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=tell, args=(its, model_type))
    process.start()
    its.close()
    try:
        if not ours.poll(LIMIT_S):
            return Outcome("failed", f"no answer in {LIMIT_S} s")
        outcome: Outcome = ours.recv()
        return outcome
    except EOFError:
        process.join()
        return Outcome("failed", f"the process ended with {process.exitcode}")
    finally:
        process.kill()
        process.join()


def tell(pipe: Any, model_type: str) -> None:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            outcome = outcome_of(model_type)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}:{frame.lineno}"
            outcome = Outcome("failed", f"{type(error).__name__} at {where}: {error}")
    pipe.send(outcome)


def outcome_of(model_type: str) -> Outcome:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        try:
            model = made(model_type)
            expected = continued(model)
            model.save_pretrained(folder)
        except Exception as error:
            return Outcome("unmade", f"{type(error).__name__}: {error}")
        try:
            runner = Runner(load_model(Path(folder)), num_tokens=4 * CONTEXT)
        except OutriderError as error:
            return Outcome("refused", str(error).replace(folder, "MODEL"))
        found = served(runner)
    if found != expected:
        at = next(i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b)
        return Outcome("differs", f"from token {at} on; level {runner.model.level}")
    return Outcome(
        "served", f"level {runner.model.level}, {runner.numerics} {runner.numerics_reason}"
    )


def made(model_type: str) -> Any:
    """A small model of it, with logits that differ. Raises what transformers does."""
    kind = CONFIG_MAPPING[model_type]
    trouble: Exception | None = None
    for names, more in OTHERWISE:
        sizes = {key: value for key, value in (SMALL | more).items() if key not in names}
        try:
            config = kind(**small(kind().to_dict(), sizes), **IDS)
            config._attn_implementation = "eager"
            model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
            for parameter in model.parameters():
                if parameter.dim() >= 2:
                    parameter.data.normal_(0, parameter.shape[-1] ** -0.5)
            model.generation_config.pad_token_id = 0
            continued(model, 1)
            return model
        except Exception as error:
            trouble = trouble or error
    assert trouble is not None
    raise trouble


def small(tree: dict[str, Any], sizes: dict[str, Any]) -> dict[str, Any]:
    """What of a config is to be another number, its parts' too."""
    given: dict[str, Any] = {}
    for key, value in tree.items():
        if key in sizes and value is not None:
            given[key] = sizes[key]
        elif key.endswith("_config") and isinstance(value, dict):
            given[key] = {**value, **small(value, sizes)}
        elif key in ("layer_types", "mlp_layer_types", "layers_block_type") and value:
            given[key] = value[: sizes.get("num_hidden_layers", len(value))]
        elif key == "per_layer_config":
            given[key] = None
    return given


def prompt() -> list[int]:
    return [(37 * at + 11) % (VOCAB_SIZE - 8) + 4 for at in range(NUM_PROMPT)]


@torch.inference_mode()
def continued(model: Any, num_tokens: int = NUM_NEW) -> list[int]:
    """Greedy, by transformers' own forward of the whole text each time."""
    ids = prompt()
    for _ in range(num_tokens):
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits
        ids.append(int(logits[0, -1].argmax()))
    return ids[NUM_PROMPT:]


def served(runner: Runner) -> list[int]:
    """Greedy, by our runner."""
    cache, ids = runner.open(), prompt()
    logits = runner.forward([Segment(cache, ids, 1)])
    found = [int(logits[0].argmax())]
    while len(found) < NUM_NEW:
        logits = runner.forward([Segment(cache, found[-1:], 1)])
        found.append(int(logits[0].argmax()))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
