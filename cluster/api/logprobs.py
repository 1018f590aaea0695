"""Log-probabilities of the generated tokens, in the two shapes of OpenAI's API.

They are the model's raw ones. JSON has no infinity: minus infinity is written as -9999.
"""

from collections.abc import Iterable

from outrider.actors.request import Chunk
from outrider.clients.responses import ChatLogprobs, CompletionLogprobs, TokenLogprob
from outrider.cluster.api.served_engine import ServedTokenizer

LOWEST = -9999.0


def completion_logprobs(
    tokenizer: ServedTokenizer, chunks: Iterable[Chunk], offset: int = 0
) -> CompletionLogprobs:
    """As completions report them; `offset` is where the first token's text begins."""
    pairs = list(_tokens(tokenizer, chunks))
    offsets = []
    for token, _ in pairs:
        offsets.append(offset)
        offset += len(token)
    return CompletionLogprobs(
        tokens=[token for token, _ in pairs],
        token_logprobs=[logprob for _, logprob in pairs],
        text_offset=offsets,
    )


def chat_logprobs(tokenizer: ServedTokenizer, chunks: Iterable[Chunk]) -> ChatLogprobs:
    """As chat reports them."""
    content = [
        TokenLogprob(token=token, logprob=logprob, bytes=list(token.encode()))
        for token, logprob in _tokens(tokenizer, chunks)
    ]
    return ChatLogprobs(content=content)


def _tokens(tokenizer: ServedTokenizer, chunks: Iterable[Chunk]) -> Iterable[tuple[str, float]]:
    for chunk in chunks:
        for token_id, logprob in zip(chunk.token_ids, chunk.logprobs, strict=True):
            yield tokenizer.decode([token_id]), max(logprob, LOWEST)
