"""What the clients of a soak ask for: every length, way and form; beginnings that many share."""

import json
from dataclasses import dataclass

WAYS = ("/v1/completions", "/v1/chat/completions", "/v1/generate")
BEGINNINGS = (
    "",
    "def add(a, b):\n    return a + b\n\n\n" * 8,
    "The str class has methods that return a changed copy of the string. " * 6,
    "You are a helpful assistant who answers questions about Python. " * 12,
)
ENDS = ("def sub(a, b):", "import os", "What does str.split do?", "class Stack:", "for line in")
FORMS = ({}, {}, {}, {"repetition_penalty": 1.1}, {"n": 2}, {"logprobs": 2}, {"top_p": 0.9})


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, as a stream."""

    path: str
    body: dict

    @property
    def undisturbed(self):
        """The oracle's: without a draft, and with nothing of its prompt kept from before."""
        alone = {"speculation": {"enabled": False}, "cache_salt": "undisturbed"}
        return Ask(self.path, self.body | alone)


def asks(rng, count, model):
    """So many, no two alike."""
    return [_ask(rng, WAYS[number % len(WAYS)], model) for number in range(count)]


def _ask(rng, path, model):
    prompt = rng.choice(BEGINNINGS) + rng.choice(ENDS)
    body = {
        "model": model,
        "stream": True,
        "seed": rng.randrange(2**31),
        "max_tokens": rng.choice([1, 3, 8, 20, 40, 80, 160]),
        "temperature": rng.choice([0.0, 0.7, 1.0]),
        "ignore_eos": rng.random() < 0.5,
    }
    body |= rng.choice(FORMS)
    if path == "/v1/generate":
        return Ask(path, body | {"prompts": [prompt]})
    body["return_token_ids"] = True
    if path == "/v1/completions":
        return Ask(path, body | {"prompt": prompt})
    if "logprobs" in body:
        body |= {"logprobs": True, "top_logprobs": 2}
    return Ask(path, body | {"messages": [{"role": "user", "content": prompt}]})


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event adds to one choice."""

    index: int
    text: str
    num_tokens: int
    reason: str | None


def pieces(line):
    """Of one line of a stream. Raises LostRequest for an event that says why there are no more."""
    if not line.startswith("data: {"):
        return []
    event = json.loads(line.removeprefix("data: "))
    if "error" in event:
        raise LostRequest(event["error"])
    if "choices" in event:
        return [_piece(choice) for choice in event["choices"]]
    return [_piece(event)] if event["type"] == "chunk" else []


def _piece(said):
    text = said["delta"].get("content") or "" if "delta" in said else said["text"]
    return Piece(said["index"], text, len(said["token_ids"]), said["finish_reason"])


class LostRequest(Exception):
    """A request that did not end as it should: refused, broken off or failed."""
