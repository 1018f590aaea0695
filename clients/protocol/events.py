"""The objects of a streamed answer as values. Source: POST /v1/generate."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.clients.results import AnswerTimings, Chunk, TokenLogprob, TokenOrigin, Usage

GUESSED = {"ngram": TokenOrigin.NGRAM, "prediction": TokenOrigin.PREDICTION}


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
    token_ids = tuple(event["token_ids"])
    num_drafted, num_accepted = event["num_drafted"], event["num_accepted"]
    return Chunk(
        index=event["index"],
        text=event["text"],
        token_ids=token_ids,
        origins=origins_of(len(token_ids), event["drafter"], num_drafted, num_accepted),
        num_drafted=num_drafted,
        num_accepted=num_accepted,
        k_reason=event["k_reason"],
        finish_reason=event["finish_reason"],
        logprobs=tuple(event.get("logprobs") or ()),
        top_logprobs=tuple(_pairs(pairs) for pairs in event.get("top_logprobs") or ()),
        token_texts=tuple(event.get("token_texts") or ()),
        prompt_logprobs=tuple(
            TokenLogprob(each["token_id"], each["logprob"], _pairs(each["top"]))
            for each in event.get("prompt_logprobs") or ()
        ),
        reasoning_len=event.get("reasoning_len", 0),
        message=event.get("message"),
    )


def origins_of(
    num_tokens: int, drafter: str, num_drafted: int, num_accepted: int
) -> tuple[TokenOrigin, ...]:
    """Where the tokens of one commit came from; a stop rule may have cut it short.

    Of three drafted tokens two were accepted, so the third token is the target's own:

    >>> [str(origin) for origin in origins_of(3, "draft", 3, 2)]
    ['accepted', 'accepted', 'recovered']
    """
    num_guessed = min(num_tokens, num_accepted)
    if num_drafted == 0:
        own = TokenOrigin.PLAIN
    else:
        own = TokenOrigin.RECOVERED if num_accepted < num_drafted else TokenOrigin.BONUS
    guessed = GUESSED.get(drafter, TokenOrigin.ACCEPTED)  # a drafter that is newer than this client
    return (guessed,) * num_guessed + (own,) * (num_tokens - num_guessed)


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


def _pairs(pairs: Any) -> tuple[tuple[int, float], ...]:
    return tuple((token_id, logprob) for token_id, logprob in pairs)
