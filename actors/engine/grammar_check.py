"""Grammars are compiled by the workers that will need them, beside their models' steps: a text that
does not compile is refused before it is queued, and nobody else's round waits for one that does.
"""

import asyncio

from outrider.actors.errors import InvalidRequest, Overloaded, WorkerLost
from outrider.actors.executor.supervisor import Supervisor
from outrider.actors.scheduling.sampling_params import Grammar
from outrider.actors.transport.messages import Compile
from outrider.actors.transport.worker_client import WorkerClient

MAX_AT_ONCE = 2  # under way: a worker compiles one after another, and cannot be stopped


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
        take so long, and WorkerLost where targets die of it.
        """
        message = Compile(grammar.kind.value, grammar.text, self._eos_ids)
        client = await self._target.up()
        try:
            await self._ask(client, message, timeout_s)
        except WorkerLost:  # it may have died of anything
            await self._ask(await self._target.up(), message, timeout_s)
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
        call.add_done_callback(lambda _: self._slots.release())  # whoever waits for it still
        done, _ = await asyncio.wait({call}, timeout=timeout_s)
        if not done:
            call.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            raise InvalidRequest(
                f"Got a grammar that did not compile within {timeout_s:g} s, "
                "expected a simpler one",
                "structured_outputs",
            )
        await call
