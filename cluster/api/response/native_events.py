"""A stream of /v1/generate: its objects as server-sent events, or as msgpack one after another."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from outrider.actors.scheduling.request import JudgedTree, OutputDelta, TokenLogprobs
from outrider.actors.transport.draft_tree import parent_rows
from outrider.clients.schema.generate import GenerateRequest, PromptToken
from outrider.cluster.api.errors import envelope_of
from outrider.cluster.api.request.body import MSGPACK
from outrider.cluster.api.request.job import Job
from outrider.cluster.api.response.chat_choice import ChatText, num_tokens
from outrider.cluster.api.response.logprobs import finite, pairs_of
from outrider.cluster.api.response.token_texts import TokenTexts
from outrider.cluster.api.response.usage import UsageCounter


def identity(job: Job) -> dict[str, Any]:
    """What names an answer and lets it be resumed."""
    return {
        "id": job.id,
        "created": job.created,
        "model": job.model,
        "fingerprint": job.engine.info.fingerprint,
        "seed": job.seed,
    }


def prompt_tokens(tokens: Iterable[TokenLogprobs]) -> list[PromptToken]:
    """The prompt's tokens from the second on."""
    return [
        PromptToken(token_id=t.token_id, logprob=finite(t.logprob), top=pairs_of(t.top))
        for t in tokens
    ]


class NativeEvents:
    """Writes the objects of one job, as `outrider.clients.schema.generate.Event` describes them."""

    def __init__(
        self,
        job: Job,
        body: GenerateRequest,
        packs: bool,
        texts: Sequence[ChatText] | None = None,
    ) -> None:
        """`texts`: of every choice, if they are turns of a chat."""
        self.media_type = MSGPACK if packs else "text/event-stream"
        self._encode = msgspec.msgpack.encode if packs else _event
        self._job = job
        self._has_logprobs = body.logprobs is not None
        self._has_alternatives = bool(body.logprobs)
        self._has_trees = body.return_trees
        self._counter = UsageCounter.of(job)
        self._texts = texts
        self._token_texts: list[TokenTexts] = []  # by choice, if asked for
        if body.return_token_texts:
            self._token_texts = [TokenTexts(job.engine.tokenizer, r) for r in job.requests]

    def start(self) -> bytes:
        """Who answers, and with which seed."""
        job = self._job
        return self._encode(
            {
                "type": "start",
                **identity(job),
                "num_choices": len(job.requests),
                "num_prompt_tokens": [len(first.prompt_ids) for first in job.first_choices],
            }
        )

    def chunk(self, index: int, chunk: OutputDelta) -> bytes:
        """One commit of one choice."""
        self._counter.add(index, chunk)
        event: dict[str, Any] = {
            "type": "chunk",
            "index": index,
            "text": chunk.text,
            "token_ids": chunk.token_ids,
            "origins": chunk.origins,
            "num_drafted": chunk.num_drafted,
            "num_accepted": chunk.num_accepted,
            "k_reason": chunk.k_reason,
            "finish_reason": chunk.finish_reason,
        }
        if self._token_texts:
            event["token_texts"] = self._token_texts[index].of(chunk)
            event["special"] = self._job.engine.tokenizer.are_special(chunk.token_ids)
        if self._has_trees and chunk.num_drafted:
            event["tree"] = self._tree(chunk.tree)
        if self._texts is not None:
            event |= self._read(self._texts[index], chunk)
        if self._has_logprobs:
            event["logprobs"] = [finite(logprob) for logprob in chunk.logprobs]
        if self._has_alternatives:
            event["top_logprobs"] = [pairs_of(top) for top in chunk.top_logprobs]
        if chunk.prompt_logprobs:
            told = prompt_tokens(chunk.prompt_logprobs)
            event["prompt_logprobs"] = [token.model_dump() for token in told]
        return self._encode(event)

    def _tree(self, tree: JudgedTree) -> dict[str, Any]:
        tokenizer, rows = self._job.engine.tokenizer, parent_rows(len(tree.token_ids), tree.parents)
        return {
            "token_ids": tree.token_ids,
            "token_texts": [tokenizer.token_text(token_id) for token_id in tree.token_ids],
            "parents": [row - 1 for row in rows],
            "drafters": tree.drafters,
            "accepted": list(tree.accepted),
        }

    def _read(self, text: ChatText, chunk: OutputDelta) -> dict[str, Any]:
        text.push(chunk)
        told: dict[str, Any] = {"reasoning_len": text.reasoning_len}
        if chunk.finish_reason is not None:
            told["message"] = text.message.model_dump()
        return told

    def end(self) -> bytes:
        """The counts."""
        tokenizer = self._job.engine.tokenizer
        for text in self._texts or ():
            self._counter.num_reasoning += num_tokens(tokenizer, text.reasoning)
        usage, metrics = self._counter.usage(), self._counter.metrics()
        return self._encode(
            {"type": "end", "usage": usage.model_dump(), "metrics": metrics.model_dump()}
        )

    def error(self, error: Exception) -> bytes:
        """A failure after the stream has begun, and its last object."""
        return self._encode({"type": "error", **envelope_of(error).model_dump()})


def _event(value: Any) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"
