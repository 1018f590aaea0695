"""Log-probabilities of prompt and text, in the shapes of OpenAI's API, vLLM's and our own.

They are the model's raw ones. JSON has no infinity: minus infinity is written as -9999.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from outrider.actors.scheduling.request import OutputDelta, TokenLogprobs
from outrider.clients.schema.openai_responses import (
    ChatCompletionTokenLogprob,
    ChatLogprobs,
    CompletionLogprobs,
    PromptLogprob,
    PromptLogprobs,
)

if TYPE_CHECKING:
    from outrider.actors.text.tokenizer import Tokenizer

LOWEST = -9999.0

Pair = tuple[int, float]  # (id, log-probability)


def finite(logprob: float) -> float:
    """A log-probability that JSON can carry."""
    return max(logprob, LOWEST)


def pairs_of(top: Iterable[Pair], count: int | None = None) -> list[Pair]:
    """The first `count` alternatives, as JSON can carry them."""
    return [(token_id, finite(logprob)) for token_id, logprob in list(top)[:count]]


def generated(chunks: Iterable[OutputDelta]) -> Iterator[TokenLogprobs]:
    """Every generated token."""
    for chunk in chunks:
        tops = chunk.top_logprobs or ((),) * len(chunk.token_ids)
        for token_id, logprob, top in zip(chunk.token_ids, chunk.logprobs, tops, strict=True):
            yield TokenLogprobs(token_id, logprob, top)


class CompletionLogprobsWriter:
    """Writes one choice's log-probabilities as completions report them, piece by piece."""

    def __init__(self, tokenizer: "Tokenizer", num_top: int) -> None:
        self._tokenizer = tokenizer
        self._num_top = num_top
        self._offset = 0  # where the next token's text begins

    def write(
        self, tokens: Iterable[TokenLogprobs], first_id: int | None = None
    ) -> CompletionLogprobs:
        """The next tokens; before them the prompt's `first_id`, which has no log-probability."""
        names, logprobs, tops = [], list[float | None](), list[dict[str, float] | None]()
        if first_id is not None:
            names, logprobs, tops = [self._tokenizer.token_text(first_id)], [None], [None]
        for token in tokens:
            name = self._tokenizer.token_text(token.token_id)
            names.append(name)
            logprobs.append(finite(token.logprob))
            tops.append(self._alternatives(token, name))
        offsets = []
        for name in names:
            offsets.append(self._offset)
            self._offset += len(name)
        return CompletionLogprobs(
            tokens=names,
            token_logprobs=logprobs,
            top_logprobs=tops if self._num_top else None,
            text_offset=offsets,
        )

    def _alternatives(self, token: TokenLogprobs, name: str) -> dict[str, float]:
        """By text; of ids that are spelled alike, the likeliest. The token itself is among them."""
        found = dict[str, float]()
        for token_id, logprob in token.top[: self._num_top]:
            found.setdefault(self._tokenizer.token_text(token_id), finite(logprob))
        found.setdefault(name, finite(token.logprob))
        return found


def chat_logprobs(
    tokenizer: "Tokenizer", chunks: Iterable[OutputDelta], num_top: int
) -> ChatLogprobs:
    """As chat reports them."""
    content = [
        _chat_token(tokenizer, token.token_id, token.logprob, token.top[:num_top])
        for token in generated(chunks)
    ]
    return ChatLogprobs(content=content)


def prompt_logprobs(
    tokenizer: "Tokenizer", tokens: Sequence[TokenLogprobs], num_top: int
) -> PromptLogprobs:
    """The prompt's, as vLLM reports them; its first token has none."""
    return [None, *(_candidates(tokenizer, token, num_top) for token in tokens)]


def _chat_token(
    tokenizer: "Tokenizer", token_id: int, logprob: float, top: Sequence[Pair] = ()
) -> ChatCompletionTokenLogprob:
    text = tokenizer.token_text(token_id)
    return ChatCompletionTokenLogprob(
        token=text,
        logprob=finite(logprob),
        bytes=list(text.encode()),
        top_logprobs=[_chat_token(tokenizer, *pair) for pair in top],
    )


def _candidates(
    tokenizer: "Tokenizer", token: TokenLogprobs, num_top: int
) -> dict[int, PromptLogprob]:
    ranks = {token_id: rank for rank, (token_id, _) in enumerate(token.top, start=1)}
    shown = {token.token_id: token.logprob} | dict(token.top[:num_top])
    return {
        token_id: PromptLogprob(
            logprob=finite(logprob),
            rank=ranks.get(token_id),
            decoded_token=tokenizer.token_text(token_id),
        )
        for token_id, logprob in shown.items()
    }
