"""What is trained and for how long: all that the weights are a function of, but the corpus."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from transformers import LlamaConfig

from outrider.actors.errors import InvalidConfig
from outrider.cluster.bench.synthetic.pair import HEAD_DIM, ModelSize
from outrider.cluster.demo.vocabulary import BOS_ID, CONTEXT_LEN, EOS_ID, VOCAB_SIZE

WARM_UP = 100  # steps, or a tenth of all
DECAY_FROM = 0.4  # of all steps
LAST_RATE = 0.02  # of the learning rate
LONG_FROM = 0.85  # of all steps: rows twice as long, half as many


TARGET = ModelSize(128, 34)  # deep and narrow, so that a step of the draft costs little of its own
DRAFT = ModelSize(128, 1)  # what a step costs is layers first, then reading the weights


def llama(role: str, size: ModelSize) -> LlamaConfig:
    """Of the target or the draft, with tied embeddings."""
    is_target = role == "target"
    num_heads = size.width // HEAD_DIM if is_target else 4 * size.width // HEAD_DIM
    return LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=size.width,
        intermediate_size=384 if is_target else 768,
        num_hidden_layers=size.num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads,
        head_dim=HEAD_DIM if is_target else HEAD_DIM // 2,
        max_position_embeddings=CONTEXT_LEN,
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        pad_token_id=BOS_ID,
    )


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """The same plan makes the same losses on the same kind of machine. Raises InvalidConfig."""

    seed: int = 0
    steps: int = 1600  # of the target
    draft_steps: int = 2000
    num_samples: int = 4096  # answers of the target that the draft learns from
    rows: int = 16  # of a step
    row_len: int = 256  # tokens
    rate: float = 3e-3
    is_compiled: bool = True
    target: ModelSize = TARGET
    draft: ModelSize = DRAFT

    @classmethod
    def read(cls, text: str) -> "TrainingPlan":
        """From its text."""
        said: dict[str, Any] = json.loads(text)
        sizes = {role: ModelSize(**said[role]) for role in ("target", "draft")}
        return cls(**{**said, **sizes})

    @property
    def text(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    def __post_init__(self) -> None:
        for name in ("steps", "draft_steps", "num_samples"):
            if getattr(self, name) < 1:
                raise InvalidConfig(f"Got {name}={getattr(self, name)}, expected at least 1")
        if self.rows < 2 or self.rows % 2:
            raise InvalidConfig(f"Got rows={self.rows}, expected an even number from 2 on")
        if not 16 <= self.row_len <= CONTEXT_LEN // 2:
            raise InvalidConfig(
                f"Got row_len={self.row_len}, expected 16 ≤ row_len ≤ {CONTEXT_LEN // 2}"
            )


def rate_at(step: int, steps: int) -> float:
    """Of the learning rate: up, level, and down in a line."""
    up = (step + 1) / min(WARM_UP, max(1, steps // 10))
    down = 1 - (step / steps - DECAY_FROM) / (1 - DECAY_FROM) * (1 - LAST_RATE)
    return min(1.0, up, down)


def pages_share_at(step: int, steps: int) -> float:
    """Of the rows: pages first, chats last, a few pages to the end."""
    return max(0.1, 0.5 - 0.8 * step / steps)


def shape_at(step: int, plan: TrainingPlan, steps: int) -> tuple[int, int]:
    """Rows and tokens of each: long rows are dear, so they come at the end."""
    if step < LONG_FROM * steps:
        return plan.rows, plan.row_len
    return plan.rows // 2, plan.row_len * 2
