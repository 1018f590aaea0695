"""What a request may ask of the models that are served; what it may ask of any is `sampling`'s.

Grammars are compiled by the workers that will need them, beside their models' steps: a text that
does not compile is refused before it is queued, and nobody else's round waits for one that does.
"""

import asyncio

from outrider.actors.engine.info import EngineInfo
from outrider.actors.errors import InvalidRequest, Overloaded, WorkerFailed, WorkerLost
from outrider.actors.executor.supervisor import Supervisor
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import Grammar
from outrider.actors.spec_decode.drafters.registry import DRAFTERS
from outrider.actors.transport.messages import AnyMessage, Compile
from outrider.actors.transport.worker_client import WorkerClient

MAX_AT_ONCE = 2  # grammars under way: a worker compiles one after another, and cannot be stopped


def check(request: Request, info: EngineInfo) -> None:
    """Raises InvalidRequest, naming the field."""
    if not request.prompt_ids:
        raise InvalidRequest("Got an empty prompt, expected at least one token", "prompt")
    _check_lengths(request, info.max_model_len)  # first: the ids are looked through after it
    _check_ids(request, info.vocab_size)
    sampling, k = request.sampling, request.speculation.k
    if sampling.grammar is not None and not info.eos_ids:
        message = "Got a grammar for a model without EOS ids, expected none: it could not end"
        raise InvalidRequest(message, "structured_outputs")
    for name in request.speculation.drafters or ():
        if name not in info.drafters:
            raise InvalidRequest(
                f"Got {name!r} in speculation.drafters, accepted: {', '.join(info.drafters)}",
                "speculation.drafters",
            )
    has_drafter = any(not DRAFTERS[name].ignores_k for name in info.drafters)
    if k and request.speculation.is_enabled and not has_drafter:
        raise InvalidRequest(
            f"Got speculation.k={k}, accepted 0: this server runs no draft", "speculation.k"
        )


def _check_ids(request: Request, vocab_size: int) -> None:
    sampling, resumed = request.sampling, request.resumed
    given = {
        "prompt": request.prompt_ids,
        "logit_bias": [token_id for token_id, _ in sampling.logit_bias],
        "stop_token_ids": sampling.stop_token_ids,
        "resume": () if resumed is None else resumed.output_ids,
    }
    for name, ids in given.items():
        low, high = min(ids, default=0), max(ids, default=0)
        if low < 0 or high >= vocab_size:
            raise InvalidRequest(
                f"Got token id {low if low < 0 else high} in {name}, "
                f"expected 0 ≤ id < {vocab_size}",
                name,
            )


def _check_lengths(request: Request, max_model_len: int) -> None:
    prompt_len, sampling = len(request.prompt_ids), request.sampling
    if prompt_len >= max_model_len:
        raise InvalidRequest(
            f"Got a prompt of {prompt_len} tokens, expected fewer than the context's "
            f"{max_model_len}",
            "prompt",
        )
    if len(request.prediction_ids) > max_model_len:
        raise InvalidRequest(
            f"Got a prediction of {len(request.prediction_ids)} tokens, expected at most the "
            f"context's {max_model_len}",
            "prediction",
        )
    if prompt_len + sampling.max_tokens > max_model_len:
        raise InvalidRequest(
            f"Got max_tokens={sampling.max_tokens} after a prompt of {prompt_len} "
            f"tokens, expected at most {max_model_len - prompt_len} in a context of "
            f"{max_model_len}",
            "max_tokens",
        )
    counts = {"min_tokens": sampling.min_tokens}
    if request.resumed is not None:
        counts["resume.generated_ids"] = len(request.resumed.output_ids)
    for name, count in counts.items():
        if count > sampling.max_tokens:
            raise InvalidRequest(
                f"Got {count} {name}, expected at most max_tokens={sampling.max_tokens}", name
            )


class GrammarCheck:
    """Asks the target; tells the draft."""

    def __init__(
        self, target: Supervisor, draft: Supervisor | None, eos_ids: tuple[int, ...]
    ) -> None:
        self._target = target
        self._draft = draft
        self._eos_ids = eos_ids
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)

    async def compile(self, grammar: Grammar, timeout_s: float) -> None:
        """Raises InvalidRequest for what is no grammar or takes longer, Overloaded where others'
        take so long, and WorkerFailed where targets die of it.
        """
        message = Compile(grammar.kind.value, grammar.text, self._eos_ids)
        client = await self._target.up()
        try:
            await self._ask(client, message, timeout_s)
        except WorkerLost:  # it may have died of anything
            try:
                await self._ask(await self._target.up(), message, timeout_s)
            except WorkerLost as error:  # whoever asks again would cost another
                reason = f"Given up: both targets that compiled this grammar were lost: {error}"
                raise WorkerFailed(reason) from error
        if self._draft is not None and self._draft.client is not None:
            self._draft.client.tell(message)

    async def _ask(self, client: WorkerClient, message: Compile, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._slots.acquire()
        except TimeoutError:
            raise Overloaded(
                f"Got a grammar while others have compiled for {timeout_s:g} s, try again"
            ) from None
        call = asyncio.ensure_future(client.call(message))
        call.add_done_callback(self._end)  # whoever waits for it still
        done, _ = await asyncio.wait({call}, timeout=timeout_s)
        if not done:
            raise InvalidRequest(
                f"Got a grammar that did not compile within {timeout_s:g} s, "
                "expected a simpler one",
                "structured_outputs",
            )
        await call

    def _end(self, call: asyncio.Future[AnyMessage]) -> None:
        self._slots.release()
        if not call.cancelled():
            call.exception()  # has been looked at, though nobody may wait any more
