"""The objects of a streamed answer as values. Source: POST /v1/generate."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.clients.results import (
    AnswerTimings,
    Chunk,
    ProposedTree,
    TokenLogprob,
    TokenOrigin,
    Usage,
)

KNOWN = {str(origin): origin for origin in TokenOrigin}


@dataclass(frozen=True, slots=True)
class Start:
    """Who answers, and what repeats the answer."""

    id: str
    created: int  # seconds since 1970
    model: str
    fingerprint: str
    seed: int
    num_choices: int
    num_prompt_tokens: int


def start_of(event: Mapping[str, Any]) -> Start:
    """The value of a "start" event. Raises KeyError, TypeError or ValueError."""
    return Start(
        id=event["id"],
        created=event["created"],
        model=event["model"],
        fingerprint=event["fingerprint"],
        seed=event["seed"],
        num_choices=event["num_choices"],
        num_prompt_tokens=sum(event["num_prompt_tokens"]),
    )


def chunk_of(event: Mapping[str, Any]) -> Chunk:
    """The value of a "chunk" event. Raises KeyError, TypeError or ValueError."""
    return Chunk(
        index=event["index"],
        text=event["text"],
        token_ids=tuple(event["token_ids"]),
        origins=tuple(map(_origin, event["origins"])),
        num_drafted=event["num_drafted"],
        num_accepted=event["num_accepted"],
        k_reason=event["k_reason"],
        finish_reason=event["finish_reason"],
        logprobs=tuple(event.get("logprobs") or ()),
        top_logprobs=tuple(_pairs(pairs) for pairs in event.get("top_logprobs") or ()),
        token_texts=tuple(event.get("token_texts") or ()),
        special=tuple(event.get("special") or ()),
        prompt_logprobs=tuple(
            TokenLogprob(each["token_id"], each["logprob"], _pairs(each["top"]))
            for each in event.get("prompt_logprobs") or ()
        ),
        reasoning_len=event.get("reasoning_len", 0),
        message=event.get("message"),
        tree=None if (tree := event.get("tree")) is None else _tree(tree),
    )


def usage_of(event: Mapping[str, Any]) -> Usage:
    """The usage in an "end" event. Raises KeyError, TypeError or ValueError."""
    usage = event["usage"]
    details = usage.get("completion_tokens_details") or {}
    prompt_details = usage.get("prompt_tokens_details") or {}
    return Usage(
        prompt_tokens=usage["prompt_tokens"],
        completion_tokens=usage["completion_tokens"],
        accepted_prediction_tokens=details.get("accepted_prediction_tokens") or 0,
        rejected_prediction_tokens=details.get("rejected_prediction_tokens") or 0,
        reasoning_tokens=details.get("reasoning_tokens") or 0,
        cached_tokens=prompt_details.get("cached_tokens") or 0,
    )


def timings_of(event: Mapping[str, Any]) -> AnswerTimings | None:
    """Those in an "end" event, if it has any. Raises KeyError or TypeError."""
    told = event["metrics"].get("timings")
    if told is None:
        return None
    return AnswerTimings(told["time_to_first_token_s"], told["decode_s"], told["tokens_per_s"])


def _origin(word: str) -> TokenOrigin:
    return KNOWN.get(word, TokenOrigin.DRAFT)  # a drafter that is newer than this client


def _tree(tree: Mapping[str, Any]) -> ProposedTree:
    return ProposedTree(
        token_ids=tuple(tree["token_ids"]),
        token_texts=tuple(tree["token_texts"]),
        parents=tuple(tree["parents"]),
        drafters=tuple(map(str, tree["drafters"])),
        accepted=tuple(tree["accepted"]),
    )


def _pairs(pairs: Any) -> tuple[tuple[int, float], ...]:
    return tuple((token_id, logprob) for token_id, logprob in pairs)
