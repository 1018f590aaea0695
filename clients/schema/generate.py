"""POST /v1/generate: many prompts a call, ids and origins of every token, resumable.

The same objects travel as JSON or as msgpack.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from outrider.clients.schema.base import (
    Many,
    Reply,
    Strict,
    conflict,
    omitted_if_none,
    optional_field,
    requires_field,
)
from outrider.clients.schema.generation_fields import MAX_TOP_LOGPROBS, GenerationFields
from outrider.clients.schema.messages import ChatMessage, Tools
from outrider.clients.schema.openai_responses import (
    ChatReply,
    CompletionUsage,
    ErrorDetail,
    Metrics,
)
from outrider.clients.schema.template_fields import TemplateFields

Ended = Literal["stop", "length"]
Alternatives = list[tuple[int, float]]  # (id, log-probability), likeliest first


class ResumedChoice(Strict):
    """As far as one choice had come."""

    generated_ids: Many[int] = Field(description="a list of the token ids that arrived")
    text_len: int = Field(ge=0, description="0 or more: characters of text that arrived")


class Resume(Strict):
    """Where a broken answer is taken up: of one choice, or of all of them in `choices`."""

    generated_ids: Many[int] | None = Field(
        default=None, description="a list of the token ids that arrived"
    )
    text_len: int | None = Field(
        default=None, ge=0, description="0 or more: characters of text that arrived"
    )
    choices: Many[ResumedChoice] | None = Field(
        default=None, description="a list of objects of generated_ids and text_len, one a choice"
    )
    seed: int = Field(description="the seed that the answer began with")
    fingerprint: str = Field(description="the fingerprint that the answer began with")

    @model_validator(mode="after")
    def _is_told_once(self) -> "Resume":
        given = (self.generated_ids is not None, self.text_len is not None)
        if given != ((False, False) if self.choices is not None else (True, True)):
            raise conflict(
                "generated_ids",
                "Got neither, part or both of choices and of generated_ids with text_len, "
                "expected one of the two",
            )
        return self

    @property
    def each(self) -> Many[ResumedChoice]:
        """Every choice, in order."""
        if self.choices is not None:
            return self.choices
        return [ResumedChoice(generated_ids=self.generated_ids or [], text_len=self.text_len or 0)]


class GenerateRequest(GenerationFields, TemplateFields):
    """Exactly one of `prompts` and `messages`, and how to go on from there."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [requires_field("prompts"), requires_field("messages")]}
    )

    prompts: Many[str] | Many[Many[int]] | None = optional_field(
        "a list of strings or of lists of token ids", minItems=1
    )
    messages: Many[ChatMessage] | None = optional_field("a list of messages", minItems=1)
    tools: Tools | None = Field(default=None, description="a list of at most 128 tools")
    logprobs: int | None = Field(
        default=None,
        ge=0,
        le=MAX_TOP_LOGPROBS,
        description=f"0 to {MAX_TOP_LOGPROBS}: alternatives told with each token",
    )
    return_token_texts: bool | None = Field(
        default=None,
        description="true: what each token added to the text, and whether it is special",
    )
    return_trees: bool | None = Field(
        default=None, description="true: a stream tells what was proposed in each round"
    )
    resume: Resume | None = Field(
        default=None,
        description="an object of seed, fingerprint, and generated_ids and text_len or choices",
    )
    allow_inexact: bool | None = Field(
        default=None, description="true: resume although the fingerprint is another"
    )

    @model_validator(mode="after")
    def _prompt_is_one(self) -> "GenerateRequest":
        if (self.prompts is None) == (self.messages is None):
            got = "neither" if self.prompts is None else "both"
            raise conflict("prompts", f"Got {got} of prompts and messages, expected one")
        if self.tools and self.messages is None:
            raise conflict("tools", "Got tools beside prompts, expected them with messages")
        self.check_messages(self.messages is not None)
        return self

    @model_validator(mode="after")
    def _all_are_resumed(self) -> "GenerateRequest":
        if self.resume is None:
            return self
        count = self.num_choices * (1 if self.prompts is None else len(self.prompts))
        if count != (given := len(self.resume.each)):
            words = f"Got resume of {given} for {count} choices, expected each once"
            raise conflict("resume", words)
        if self.seed not in (None, self.resume.seed):
            got = f"Got seed={self.seed} and resume.seed={self.resume.seed}"
            raise conflict("seed", f"{got}, expected the same, or none beside resume")
        return self

    @property
    def num_top_logprobs(self) -> int:
        """Alternatives told with each generated token."""
        return self.logprobs or 0

    @property
    def num_prompt_logprobs(self) -> int | None:
        """Alternatives told with each of the prompt's tokens, if it is told."""
        return self.prompt_logprobs


class PromptToken(Reply):
    """One token of the prompt, from the second on."""

    token_id: int
    logprob: float
    top: Alternatives


class GeneratedChoice(Reply):
    """One choice of one prompt. When resumed: what came after the resume point."""

    index: int  # prompt_index * n + choice
    prompt_index: int
    choice: int
    text: str
    token_ids: list[int]
    token_texts: list[str] | None = omitted_if_none()
    special: list[bool] | None = omitted_if_none()  # beside token_texts: EOS and the like
    message: ChatReply | None = omitted_if_none()  # the text as a turn, if it answers `messages`
    finish_reason: Ended
    logprobs: list[float] | None = None
    top_logprobs: list[Alternatives] | None = None
    prompt_logprobs: list[PromptToken] | None = None


class Generated(Reply):
    """The answer, whole."""

    id: str
    created: int  # seconds since 1970
    model: str
    fingerprint: str
    seed: int
    choices: list[GeneratedChoice]
    usage: CompletionUsage
    metrics: Metrics


class StartEvent(Reply):
    """The first object of a stream: all that a resume needs beside the ids."""

    type: Literal["start"] = "start"
    id: str
    created: int
    model: str
    fingerprint: str
    seed: int
    num_choices: int
    num_prompt_tokens: list[int]  # of each prompt


class Tree(Reply):
    """What was proposed in the round of a commit, all judged in one forward of the target."""

    token_ids: list[int]
    token_texts: list[str]  # each by itself
    parents: list[int]  # of each token, an earlier one; -1 is the text before
    drafters: list[str]  # of each token
    accepted: list[int]  # which of the tokens, in the order of the text


class ChunkEvent(Reply):
    """One commit of one choice."""

    type: Literal["chunk"] = "chunk"
    index: int
    text: str
    token_ids: list[int]
    # Of each token: the drafter whose it was ("draft", "ngram", …); or of the target's own draws
    # "recovered", in place of tokens that it rejected, "bonus", behind all that was proposed there,
    # and "plain", where nothing was.
    origins: list[str]
    num_drafted: int
    num_accepted: int
    k_reason: str
    tree: Tree | None = omitted_if_none()  # where asked for and something was proposed
    token_texts: list[str] | None = omitted_if_none()  # together they are `text`
    special: list[bool] | None = omitted_if_none()  # beside token_texts: EOS and the like
    # If it answers `messages`: characters of the choice's text so far, from its beginning, that are
    # thoughts and their marks; null while it is not known what it begins with.
    reasoning_len: int | None = None
    message: ChatReply | None = omitted_if_none()  # with the last: the text as a turn
    logprobs: list[float] | None = omitted_if_none()
    top_logprobs: list[Alternatives] | None = omitted_if_none()
    prompt_logprobs: list[PromptToken] | None = omitted_if_none()
    finish_reason: Ended | None


class EndEvent(Reply):
    """The last object of a stream."""

    type: Literal["end"] = "end"
    usage: CompletionUsage
    metrics: Metrics


class ErrorEvent(Reply):
    """A failure after the stream has begun, and its last object."""

    type: Literal["error"] = "error"
    error: ErrorDetail


Event = Annotated[StartEvent | ChunkEvent | EndEvent | ErrorEvent, Field(discriminator="type")]
