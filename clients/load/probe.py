"""Finds out, before anything is measured, who answers and how its tokens can be counted."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from outrider.clients.errors import OutriderClientError
from outrider.clients.load.answer import Answer
from outrider.clients.load.dialect import LADDER, Dialect
from outrider.clients.load.prompt_request import Ask
from outrider.clients.load.record import RequestFailure
from outrider.clients.load.sender import REFUSED, Sender
from outrider.clients.load.token_counts import CountedBy

MAX_TOKENS = 4  # of a probe's answer
MAX_TRIES = 3  # at an answer with a token in it


class Unmeasurable(OutriderClientError):
    """A server that cannot be measured as it was wished."""


@dataclass(frozen=True, slots=True)
class Finding:
    """How to speak to the server, and what it did not take."""

    dialect: Dialect
    counted_by: CountedBy
    refusals: tuple[str, ...] = ()  # in words, with the server's own


async def served_model(sender: Sender, wished: str | None) -> str:
    """The model to ask for: the one wished, or the first one served. Raises Unmeasurable."""
    if wished is not None:
        return wished
    content = await sender.get("/v1/models")
    try:
        name = json.loads(content or b"")["data"][0]["id"]
    except (ValueError, LookupError, TypeError):
        raise Unmeasurable("Got no list of models from /v1/models; name one by --model") from None
    return str(name)


async def probe(sender: Sender, asks: Iterator[Ask], must_ignore_eos: bool | None) -> Finding:
    """Ask with ever fewer optional fields until the server answers. Raises Unmeasurable.

    `must_ignore_eos`: True refuses a server that does not take `ignore_eos`, None goes without.
    """
    if must_ignore_eos is False:
        return await _climb(sender, asks, ignores_eos=False)
    try:
        return await _climb(sender, asks, ignores_eos=True)
    except Unmeasurable as error:
        finding = await _climb(sender, asks, ignores_eos=False)  # or there is another reason
        refusal = f"the server does not take ignore_eos ({error})"
        if must_ignore_eos:
            raise Unmeasurable(f"{refusal}; measure without it") from None
        return replace(finding, refusals=(refusal, *finding.refusals))


async def _climb(sender: Sender, asks: Iterator[Ask], ignores_eos: bool) -> Finding:
    """Down the ladder to the first dialect whose tokens are told with each chunk."""
    refusals: list[str] = []
    taken: Finding | None = None
    last = ""
    for dialect in (replace(each, ignores_eos=ignores_eos) for each in LADDER):
        answer, failure = await _answered(sender, asks, dialect)
        if failure is None:
            counted_by = answer.counted()[1]
            taken = Finding(dialect, counted_by, tuple(refusals))
            if counted_by.is_told or not (dialect.has_running_usage or dialect.has_ids):
                return taken
        elif failure.kind in REFUSED:
            last = failure.message
            refusals.append(f"the server does not take {dialect} ({last})")
        else:
            raise Unmeasurable(failure.message)
    if taken is None:
        raise Unmeasurable(last)
    return taken


async def _answered(
    sender: Sender, asks: Iterator[Ask], dialect: Dialect
) -> tuple[Answer, RequestFailure | None]:
    """An answer with a token in it: a model may end its text before the first."""
    for _ in range(MAX_TRIES):
        answer = Answer()
        failure = await sender.send(replace(next(asks), max_tokens=MAX_TOKENS), dialect, answer)
        if failure is None or failure.kind != "empty":
            break
    return answer, failure
