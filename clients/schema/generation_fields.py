"""What every way of asking for text has in common: sampling, speculation, where it ends.

Types are held here. Ranges are told (in words and in the schema) and held by
`outrider.actors.scheduling.sampling_params`, limits of the model by the engine.
"""

from typing import Literal

from pydantic import Field

from outrider.clients.schema.base import Many, Strict, optional_field
from outrider.clients.schema.messages import Content, text_of
from outrider.clients.schema.structured_outputs import StructuredOutputs

MAX_TOP_LOGPROBS = 20
WHOLE = {"pattern": "^[0-9]+$"}


class SpeculationOptions(Strict):
    """How one request wants to be speculated on. Changes its speed, never its text."""

    enabled: bool = Field(default=True, description="true or false")
    k: int | None = optional_field("a whole number: drafted tokens a round", minimum=0, maximum=16)
    verification: Literal["coupled", "rejection"] | None = Field(
        default=None, description='"coupled" or "rejection"; by default the server\'s'
    )
    drafters: Many[str] | None = optional_field(
        "a list of names among the server's: those that may draft", maxItems=16
    )


class Prediction(Strict):
    """What the client expects the text to be. It is drafted from, never believed."""

    type: Literal["content"] = Field(description='"content"')
    content: Content = Field(description="a string or a list of text parts")

    @property
    def text(self) -> str:
        """The content as one string."""
        return text_of(self.content)


class GenerationFields(Strict):
    """The fields of sampling under their usual names."""

    model: str = Field(description="the name of a served model")
    temperature: float | None = optional_field(
        "a number: 0 (greedy) to 100", minimum=0, maximum=100
    )
    top_p: float | None = optional_field("a number, 0 < top_p ≤ 1", exclusiveMinimum=0, maximum=1)
    top_k: int | None = optional_field(
        "a whole number; 0 or -1 is off", minimum=-1, maximum=2**31 - 1
    )
    min_p: float | None = optional_field("a number, 0 ≤ min_p ≤ 1", minimum=0, maximum=1)
    seed: int | None = optional_field(
        "a 64-bit signed integer", minimum=-(2**63), maximum=2**63 - 1
    )
    n: int | None = optional_field("a whole number: choices of each prompt", minimum=1)
    max_tokens: int | None = optional_field("a whole number, at least 1", minimum=1)
    min_tokens: int | None = optional_field("a whole number, 0 or more", minimum=0)
    stop: str | Many[str] | None = optional_field("a string or a list of strings", maxItems=64)
    include_stop_str_in_output: bool | None = optional_field(
        "true: the stop string that ended the text is its end"
    )
    skip_special_tokens: bool | None = optional_field("false: special tokens are part of the text")
    stop_token_ids: Many[int] | None = optional_field(
        "a list of token ids that end the text like EOS"
    )
    ignore_eos: bool | None = optional_field("true: EOS does not end the text")
    logit_bias: dict[int, float] | None = optional_field(
        "an object of token ids, each with a number, -100 to 100", propertyNames=WHOLE
    )
    presence_penalty: float | None = optional_field("a number, -2 to 2", minimum=-2, maximum=2)
    frequency_penalty: float | None = optional_field("a number, -2 to 2", minimum=-2, maximum=2)
    repetition_penalty: float | None = optional_field(
        "a number, 0.01 to 100; 1 is off", minimum=0.01, maximum=100
    )
    structured_outputs: StructuredOutputs | None = Field(
        default=None, description="an object of one field: json, regex, choice or grammar"
    )
    prediction: Prediction | None = Field(
        default=None, description='an object of type "content" and content'
    )
    speculation: SpeculationOptions | None = Field(
        default=None, description="an object of enabled, k and verification"
    )
    cache_salt: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="a string of 1 to 256 characters: what is kept of a prompt is shared only "
        "among requests with the same one",
    )
    prompt_logprobs: int | None = Field(
        default=None,
        ge=0,
        le=MAX_TOP_LOGPROBS,
        description=f"0 to {MAX_TOP_LOGPROBS}: alternatives told with each of the prompt's tokens",
    )
    stream: bool | None = Field(default=None, description="true or false")

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings, however they were written."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def num_choices(self) -> int:
        """Choices of each prompt."""
        return 1 if self.n is None else self.n
