"""One choice of a completion, whole and piece by piece: echo, log-probabilities, ids."""

import json
from collections.abc import Sequence

from outrider.actors.scheduling.request import OutputDelta, TokenLogprobs
from outrider.clients.schema.openai_requests import CompletionRequest
from outrider.clients.schema.openai_responses import CompletionLogprobs
from outrider.cluster.api.request.job import Job
from outrider.cluster.api.request.prompts import separate
from outrider.cluster.api.response.logprobs import CompletionLogprobsWriter, generated


class Echo:
    """The prompts' texts as they stand before the choices': the client's own, or of its ids."""

    def __init__(self, job: Job, body: CompletionRequest) -> None:
        decode = job.engine.tokenizer.decode
        self._num_choices = job.num_choices
        self._texts = [
            prompt if isinstance(prompt, str) else decode(prompt)
            for prompt in separate(body.prompt)
        ]

    def text(self, index: int) -> str:
        """What stands before a choice's text."""
        return self._texts[index // self._num_choices]


class CompletionChoiceWriter:
    """Writes one commit as a choice of `text_completion`."""

    def __init__(self, job: Job, body: CompletionRequest, echo: Echo | None) -> None:
        self._job = job
        self._echo = echo
        self._has_ids = bool(body.return_token_ids)
        self._unopened = set(range(len(job.requests)))  # choices that wrote nothing yet
        self._logprobs: list[CompletionLogprobsWriter] | None = None
        if body.logprobs is not None:
            self._logprobs = [_writer(job, body) for _ in job.requests]

    def write(self, index: int, chunk: OutputDelta) -> str:
        """The JSON of `choices[0]`."""
        is_first = index in self._unopened
        self._unopened.discard(index)
        text, prompt_ids = chunk.text, self._job.requests[index].prompt_ids
        first_id, prompt = None, tuple[TokenLogprobs, ...]()
        if is_first and self._echo is not None:
            text = self._echo.text(index) + text
            first_id, prompt = prompt_ids[0], chunk.prompt_logprobs
        logprobs = "null"
        if self._logprobs is not None:
            tokens = [*prompt, *generated([chunk])]
            logprobs = self._logprobs[index].write(tokens, first_id).model_dump_json()
        ids = ""
        if self._has_ids:
            ids = f', "token_ids": {json.dumps(chunk.token_ids)}'
            if is_first:
                ids += f', "prompt_token_ids": {json.dumps(prompt_ids)}'
        reason = "null" if chunk.finish_reason is None else f'"{chunk.finish_reason}"'
        return (
            f'{{"index": {index}, "text": {json.dumps(text)}, '
            f'"logprobs": {logprobs}, "finish_reason": {reason}{ids}}}'
        )


def choice_logprobs(
    job: Job, body: CompletionRequest, index: int, chunks: Sequence[OutputDelta]
) -> CompletionLogprobs | None:
    """Those of a whole choice, the prompt's first where it is echoed."""
    if body.logprobs is None:
        return None
    tokens = list(generated(chunks))
    if not body.echo:
        return _writer(job, body).write(tokens)
    first_id = job.requests[index].prompt_ids[0]
    return _writer(job, body).write([*chunks[0].prompt_logprobs, *tokens], first_id)


def _writer(job: Job, body: CompletionRequest) -> CompletionLogprobsWriter:
    return CompletionLogprobsWriter(job.engine.tokenizer, body.num_top_logprobs)
