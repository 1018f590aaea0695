"""What the toy server says: POST /v1/generate as events, without a model and without HTTP.

A token is a UTF-16 code unit, so that text lags behind tokens where a character has two. A text is
a function of prompt, seed and choice; how it is cut into commits is up to `rng`, as it is up to the
draft in a real server.
"""

import random
from collections.abc import Iterator, Mapping
from typing import Any

FINGERPRINT = "toy-1"
CANNED = {  # of greedy requests, by the last line of the prompt; each string is one commit
    "def add(a, b):": ["\n    return", " a", " + b"],
    "import ": ["os"],
    "What does len return?": ["The number", " of items."],
}
LETTERS = "abcdefghij klmnopq rstuvwxyz é ü ß 中文 😀🎉"
CREATED = 1_780_000_000


class Refused(Exception):
    """A request that the toy answers with an error's status."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def ids_of(text: str) -> list[int]:
    """The UTF-16 code units."""
    data = text.encode("utf-16-le")
    return [int.from_bytes(data[i : i + 2], "little") for i in range(0, len(data), 2)]


def text_of(ids: list[int]) -> str:
    """The complete characters."""
    data = b"".join(unit.to_bytes(2, "little") for unit in ids)
    return data.decode("utf-16-le", errors="ignore")


def token_texts(text: str, num_tokens: int) -> list[str]:
    """The text in as many pieces; that of the last token is as long as need be."""
    pieces = list(text[: num_tokens - 1])
    pieces += [""] * (num_tokens - 1 - len(pieces))
    return [*pieces, text[num_tokens - 1 :]]


def story(prompt: str, seed: int, choice: int, length: int) -> list[int]:
    """The ids of one choice."""
    rng = random.Random(f"{prompt}|{seed}|{choice}")
    ids: list[int] = []
    while len(ids) < length:
        ids += ids_of(rng.choice(LETTERS))
    return ids[:length]


def events_of(body: Mapping[str, Any], rng: random.Random) -> Iterator[dict[str, Any]]:
    """The stream that answers a request. Raises Refused at the first one."""
    prompt = body["prompts"][0] if "prompts" in body else body["messages"][-1]["content"]
    prompt = prompt if isinstance(prompt, str) else text_of(prompt)
    num_choices = body.get("n", 1)
    resumed = _resumed(body, num_choices)
    given = resumed[0][0]
    yield {
        "type": "start",
        "id": f"gen-{body['seed']}",
        "created": CREATED,
        "model": body["model"],
        "fingerprint": FINGERPRINT,
        "seed": body["seed"],
        "num_choices": num_choices,
        "num_prompt_tokens": [len(ids_of(prompt))],
    }
    canned = CANNED.get(prompt) if body.get("temperature") == 0 and not given else None
    if canned is not None:
        choices = [_canned(canned)]
    else:
        texts = [
            story(prompt, body["seed"], c, body.get("max_tokens", 16)) for c in range(num_choices)
        ]
        for ids, (had, _) in zip(texts, resumed, strict=True):
            if ids[: len(had)] != had:
                raise Refused(400, f"Got generated_ids={had}, expected a part", "invalid_value")
        choices = [
            _commits(i, ids, *had, rng)
            for i, (ids, had) in enumerate(zip(texts, resumed, strict=True))
        ]
    num_tokens = sum(len(had) for had, _ in resumed)
    while choices:
        commits = rng.choice(choices)
        if (chunk := next(commits, None)) is None:
            choices.remove(commits)
            continue
        num_tokens += len(chunk["token_ids"])
        if body.get("return_token_texts"):
            chunk["token_texts"] = token_texts(chunk["text"], len(chunk["token_ids"]))
        yield chunk
    usage = {"prompt_tokens": len(ids_of(prompt)), "completion_tokens": num_tokens}
    timings = {"time_to_first_token_s": 0.25, "decode_s": 2.0, "tokens_per_s": 21.5}
    yield {"type": "end", "usage": usage, "metrics": {"timings": timings}}


def _resumed(body: Mapping[str, Any], num_choices: int) -> list[tuple[list[int], int]]:
    """Ids and characters that the client has, by choice."""
    resume = body.get("resume")
    if resume is None:
        return [([], 0)] * num_choices
    if resume["fingerprint"] != FINGERPRINT and not body.get("allow_inexact"):
        raise Refused(
            409, f"Got {resume['fingerprint']!r}, expected 'toy-1'", "fingerprint_mismatch"
        )
    assert resume["seed"] == body["seed"]
    choices = resume.get("choices", [resume])
    assert len(choices) == num_choices
    for choice in choices:
        assert choice["text_len"] <= len(text_of(choice["generated_ids"]))
    return [(choice["generated_ids"], choice["text_len"]) for choice in choices]


def _commits(
    index: int, ids: list[int], given: list[int], text_len: int, rng: random.Random
) -> Iterator[dict[str, Any]]:
    end = len(given)
    while end < len(ids):
        num_drafted = rng.randrange(5)
        num_accepted = rng.randint(0, num_drafted)
        start, end = end, min(len(ids), end + num_accepted + 1)
        text = text_of(ids[:end])
        chunk = _chunk(index, text[text_len:], ids[start:end], num_drafted, num_accepted)
        text_len = len(text)
        if end == len(ids):
            chunk["finish_reason"] = "length"
        yield chunk


def _canned(texts: list[str]) -> Iterator[dict[str, Any]]:
    for number, text in enumerate(texts, 1):
        ids = ids_of(text)
        chunk = _chunk(0, text, ids, len(ids) - number % 2, len(ids) - 1)
        chunk["finish_reason"] = "stop" if number == len(texts) else None
        yield chunk


def _chunk(
    index: int, text: str, ids: list[int], num_drafted: int, num_accepted: int
) -> dict[str, Any]:
    return {
        "type": "chunk",
        "index": index,
        "text": text,
        "token_ids": ids,
        "origins": ["draft"] * min(num_accepted, len(ids))
        + [_own(num_drafted, num_accepted)] * (len(ids) - num_accepted),
        "num_drafted": num_drafted,
        "num_accepted": num_accepted,
        "k_reason": "fixed",
        "finish_reason": None,
    }


def _own(num_drafted: int, num_accepted: int) -> str:
    if not num_drafted:
        return "plain"
    return "recovered" if num_accepted < num_drafted else "bonus"
