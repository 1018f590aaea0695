"""What an engine is started with: two models, and the options that the operator chose."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)

from outrider.actors.errors import InvalidConfig
from outrider.actors.lookahead.round_report import DRAFT
from outrider.actors.scheduling.sampling_params import MAX_K, VerificationMode
from outrider.actors.sizing.machine import num_cores
from outrider.actors.spec_decode.drafters.registry import (
    DRAFTERS,
    SUFFIX_BYTES,
    USUAL_DRAFTERS,
    ChosenDrafter,
    Place,
    chosen_drafters,
)

Count = Annotated[int, Field(ge=1)]
CPU_BATCH, DEVICE_BATCH = 64, 256  # a device computes many rows in the time of one
UNTIMED_CHUNK = 192


def _listed(value: Any) -> Any:
    """A list, or text with commas, as a tuple."""
    if isinstance(value, str):
        return tuple(filter(None, map(str.strip, value.split(","))))
    return tuple(value) if isinstance(value, list) else value


class EngineOptions(BaseModel):
    """How the engine decodes. Raises InvalidConfig."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    k: int = Field(
        default=4,
        ge=0,
        le=MAX_K,
        description=f"0 ≤ k ≤ {MAX_K}: drafted tokens a round, where lookahead is 'fixed'",
    )
    drafters: Annotated[tuple[str, ...], BeforeValidator(_listed)] = Field(
        default=USUAL_DRAFTERS,
        description=f"names among {', '.join(DRAFTERS)}, in order of preference; heads of the "
        "target are written KIND:PATH, an early exit early_exit or early_exit:LAYERS",
    )
    verification: VerificationMode = Field(
        default=VerificationMode.COUPLED, description="'coupled' or 'rejection'"
    )
    generation_config: Literal["model", "none"] = Field(
        default="model",
        description="'model' or 'none': what requests leave open is sampled as the target's "
        "generation_config.json says, or as OpenAI does",
    )
    numerics: Literal["auto", "exact", "fast"] = Field(
        default="auto", description="'auto', 'exact' or 'fast'"
    )
    device: str = Field(default="auto", description="'auto', 'cpu', 'cuda' or 'cuda:N'")
    draft_device: str = Field(
        default="auto", description="the same of the draft; 'auto': as the target's"
    )
    dtype: str = Field(default="auto", description="'auto' or a torch dtype")
    kv_tokens: Count | Literal["auto"] = Field(
        default="auto",
        description="at least 1, or 'auto', by the memory that is free: tokens of text whose keys "
        "and values the workers hold",
    )
    max_batch: Count | Literal["auto"] = Field(
        default="auto",
        description=f"at least 1, or 'auto' ({CPU_BATCH} on cores, {DEVICE_BATCH} on a GPU): "
        "sequences decoded at once",
    )
    max_waiting: Count = Field(default=256, description="at least 1: sequences in the queue")
    token_budget: Count | Literal["auto"] = Field(
        default="auto",
        description="at least 1, or 'auto', by timed forwards: tokens in one forward",
    )
    num_threads: Count | Literal["auto"] = Field(
        default="auto",
        description="at least 1, or 'auto', by timed forwards: CPU threads of each worker",
    )
    is_colocated: bool | Literal["auto"] = Field(
        default="auto",
        description="true, false, or 'auto', by devices and timed forwards: draft and target in "
        "one process",
    )
    pipeline: Literal["auto", "ahead", "lockstep"] = Field(
        default="auto",
        description="'ahead': the draft grows trees while the target verifies; 'lockstep': they "
        "take turns; 'auto'",
    )
    lookahead: Literal["adaptive", "fixed"] = Field(
        default="adaptive",
        description="'adaptive', by price, as measured; or 'fixed', by k",
    )
    has_prefix_cache: bool = Field(
        default=True,
        description="true or false: keep the KV of prompts, for those that begin alike",
    )
    min_head_score: float = Field(
        default=0.2,
        ge=0,
        le=1,
        description="0 ≤ share ≤ 1: of its first tokens right over the target's own text, below "
        "which a head is refused; 0 takes any",
    )
    suffix_bytes: int = Field(
        default=SUFFIX_BYTES,
        ge=1 << 22,
        description="at least 4 MiB: bytes of past prompts and outputs, for the drafter 'suffix'",
    )
    shares_suffixes: bool = Field(
        default=False,
        description="true or false: requests without API key and cache_salt draft from each "
        "other's past texts too, which their timing may tell of",
    )
    trace: Path | None = Field(
        default=None, description="a file for a timeline of every round, written at the end"
    )
    worker_deadline_s: float = Field(
        default=30.0, gt=0, description="above 0: a worker silent for so long is replaced"
    )

    @property
    def most_threads(self) -> int:
        """That one process may use."""
        return num_cores() if self.num_threads == "auto" else self.num_threads

    @property
    def device_of_draft(self) -> str:
        return self.device if self.draft_device == "auto" else self.draft_device

    def batch(self, *, on_device: bool) -> int:
        """`max_batch`, found where it was left open."""
        found = DEVICE_BATCH if on_device and self.device != "cpu" else CPU_BATCH
        return found if self.max_batch == "auto" else self.max_batch

    def budget(self, timed: int, batch: int) -> int:
        """`token_budget`: what was found by timing, 0 where nothing was timed."""
        found = timed or batch + UNTIMED_CHUNK
        return found if self.token_budget == "auto" else self.token_budget

    @property
    def cpu_item_bytes(self) -> int:
        """Of a number of the models, where they are computed on the CPU."""
        return 2 if self.dtype in ("bfloat16", "float16") else 4

    @property
    def chosen_drafters(self) -> tuple[ChosenDrafter, ...]:
        """The kinds of `drafters`."""
        return chosen_drafters(self.drafters)

    @property
    def head(self) -> str:
        """What drafts out of the target's hidden states, KIND:PATH; or nothing."""
        return "" if self.chosen_head is None else str(self.chosen_head)

    @property
    def chosen_head(self) -> ChosenDrafter | None:
        """The same, with its kind."""
        found = self.chosen_drafters
        return next((each for each in found if each.kind.place is Place.TARGET), None)

    @model_validator(mode="wrap")
    @classmethod
    def _told(cls, data: Any, build: ModelWrapValidatorHandler[Self]) -> Self:
        """An error of one field in the operator's words."""
        try:
            return build(data)
        except ValidationError as error:
            (name, *_), got = error.errors()[0]["loc"], error.errors()[0]["input"]
            field = cls.model_fields.get(str(name))
            expected = f"one of {', '.join(cls.model_fields)}"
            if field is not None:
                expected = field.description or ""
            raise InvalidConfig(f"Got {name}={got!r}, expected {expected}") from None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.is_colocated is True and self.pipeline == "ahead":
            raise InvalidConfig("Got is_colocated with pipeline='ahead', accepted: 'lockstep'")
        if self.is_colocated is True and self.device_of_draft != self.device:
            raise InvalidConfig(
                f"Got is_colocated with device='{self.device}' and "
                f"draft_device='{self.draft_device}', accepted: one device for both"
            )
        if self.head and (self.is_colocated is False or self.pipeline == "ahead"):
            raise InvalidConfig(
                f"Got the drafter {self.head} with is_colocated={self.is_colocated!r}, "
                f"pipeline={self.pipeline!r}, accepted: 'auto': it is in the target's process"
            )
        return self


DEFAULTS = EngineOptions()


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The models' directories, and how they are used."""

    target: Path
    draft: Path | None = None
    options: EngineOptions = DEFAULTS
    num_replicas: int = 1  # that share this machine's cores and memory

    def __post_init__(self) -> None:
        asked = self.options
        if asked.head and self.used_draft is not None:
            raise InvalidConfig(
                f"Got the drafter {asked.head} and the draft model {self.used_draft}, accepted: "
                "one of them"
            )
        is_apart = asked.is_colocated is False or asked.device_of_draft != asked.device
        is_priced = asked.pipeline == "lockstep" and asked.lookahead == "adaptive"
        if self.used_draft is not None and is_apart and is_priced:
            raise InvalidConfig(
                "Got pipeline='lockstep' with lookahead='adaptive' for a draft apart from its "
                "target, accepted: lookahead='fixed', or pipeline='ahead'"
            )

    @property
    def used_draft(self) -> Path | None:
        """The draft's, if the draft is among the drafters."""
        kinds = {chosen.kind.place for chosen in self.options.chosen_drafters}
        return self.draft if Place.DRAFT in kinds else None

    @property
    def drafter(self) -> str:
        """Which drafter of MODELS grows trees, if any does."""
        head = self.options.chosen_head
        return DRAFT if head is None else head.kind.name

    @property
    def draft_name(self) -> str | None:
        """Of the draft's folder, or of the head's; an early exit has none."""
        if self.used_draft is not None:
            return self.used_draft.name
        head = self.options.chosen_head
        if head is None:
            return None
        return Path(head.value).name if head.kind.needs_value else str(head)
