"""Requests that nobody should send, from a seed: broken bodies, absurd values, odd routes."""

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgpack
from cluster.asgi import LEAVES, STALLS

PATHS = (
    "/v1/completions", "/v1/chat/completions", "/v1/generate", "/tokenize", "/detokenize",
    "/v1/models", "/v1/models/toy", "/health", "/ready", "/metrics", "/capabilities",
    "/openapi.json", "/",
)  # fmt: skip
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW", "post")
TURN = {"role": "user", "content": "hi"}
SAMPLING: dict[str, Any] = {
    "model": "toy", "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 1, "n": 2,
    "max_tokens": 4, "min_tokens": 1, "stop": ["x"], "stop_token_ids": [3], "ignore_eos": True,
    "logit_bias": {"5": 1.0}, "presence_penalty": 0.5, "frequency_penalty": 0.5,
    "repetition_penalty": 1.1, "speculation": {"enabled": True, "k": 2}, "stream": False,
    "prediction": {"type": "content", "content": "abc"}, "structured_outputs": {"regex": "a+"},
}  # fmt: skip
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": SAMPLING
    | {"prompt": "hi", "logprobs": 1, "echo": False, "user": "u", "stream_options": None},
    "/v1/chat/completions": SAMPLING
    | {"messages": [TURN], "logprobs": True, "top_logprobs": 2, "tool_choice": "none"},
    "/v1/generate": SAMPLING | {"prompts": ["hi", "you"], "logprobs": 2, "prompt_logprobs": 1},
    "/tokenize": {"model": "toy", "prompt": "hi"},
    "/detokenize": {"model": "toy", "tokens": [104, 105]},
}
BOMBS = (
    b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff", b"\xdc\xff\xff" + b"\xc0" * 65535,
    b"\xc9\xff\xff\xff\xff\x01", b"\x91" * 100_000, b"\x81\xa1a" * 50_000, b"\xc1", b"\xd4\x01\x00",
    b"\xcf" + b"\xff" * 8, b"\xcb\x7f\xf8" + b"\0" * 6, b"\xa2\xff\xfe",
)  # fmt: skip
NAMES = (
    "x-request-id", "x-request-timeout-s", "authorization", "content-type", "accept", "origin",
    "content-length", "x-forwarded-for", "host", "transfer-encoding", "cookie",
)  # fmt: skip


@dataclass
class FuzzRequest:
    """What is sent."""

    path: str
    pieces: list[Any] = field(default_factory=lambda: [b""])
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)


def fuzz_request(chance: random.Random) -> FuzzRequest:
    """Any of the kinds below, the cheap and plenty ones most often."""
    makers: list[Callable[[random.Random], FuzzRequest]] = [
        wrong_value, wrong_value, wrong_value, broken_json, broken_json, broken_msgpack,
        odd_route, odd_headers,
    ]  # fmt: skip
    request = chance.choice(makers)(chance)
    if chance.random() < 0.01:
        cut = chance.randrange(len(request.pieces[0]) + 1)
        request.pieces = [request.pieces[0][:cut], chance.choice((STALLS, LEAVES))]
    return request


def wrong_value(chance: random.Random) -> FuzzRequest:
    """A body with a few absurd values, in JSON or msgpack."""
    path = chance.choice(list(BODIES))
    body = _shuffled(chance, BODIES[path])
    for _ in range(chance.randrange(4)):
        name = chance.choice([*BODIES[path], _text(chance)])
        body[name] = value(chance)
    if path == "/v1/generate" and chance.random() < 0.5:
        return FuzzRequest(path, [_packed(body)], headers={"content-type": "application/msgpack"})
    return FuzzRequest(path, [_dumped(body)])


def broken_json(chance: random.Random) -> FuzzRequest:
    """Bytes of a good body lost, doubled or changed; or nesting without end."""
    path = chance.choice(list(BODIES))
    if chance.random() < 0.05:
        opening = chance.choice((b"[", b'{"a":', b'{"prompt":[', b'{"messages":[{"content":'))
        return FuzzRequest(path, [opening * chance.choice((10, 1000, 20_000))])
    return FuzzRequest(path, [_mutated(chance, _dumped(BODIES[path]))])


def broken_msgpack(chance: random.Random) -> FuzzRequest:
    """Declared lengths that never come, extension types, depth; or bytes changed."""
    body = chance.choice(BOMBS)
    if chance.random() < 0.7:
        body = _mutated(chance, _packed(BODIES["/v1/generate"]))
    headers = {
        "content-type": "application/msgpack",
        "accept": chance.choice(("", "*/*", "a/b;q=x")),
    }
    return FuzzRequest("/v1/generate", [body], headers=headers)


def odd_route(chance: random.Random) -> FuzzRequest:
    """A path or a method that is not served."""
    path = chance.choice(PATHS)
    if chance.random() < 0.5:
        text = _text(chance)
        changed = (
            f"{path}/",
            f"/{path}",
            f"{path}/../{text}",
            path.upper(),
            f"/{text}",
            "",
            "//[::1",
        )
        path = chance.choice((*changed, f"/v1/models/{text}"))
    path = path.encode(errors="replace").decode()  # as every server decodes it
    headers = {name: _header(chance) for name in chance.sample(NAMES, chance.choice((0, 0, 2)))}
    return FuzzRequest(path, [chance.randbytes(8)], chance.choice(METHODS), headers)


def odd_headers(chance: random.Random) -> FuzzRequest:
    """A good body under headers that are none."""
    path = chance.choice(list(BODIES))
    names = chance.sample(NAMES, 3)
    return FuzzRequest(path, [_dumped(BODIES[path])], headers={n: _header(chance) for n in names})


def value(chance: random.Random, depth: int = 0) -> Any:
    """Something that no field accepts, or at the edge of what it does."""
    plain = (
        None, True, False, 0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**64), 10**300, 0.1, -0.0, 1e308,
        math.nan, math.inf, -math.inf, "", "NaN", "1", "\0", "\ud800", "x" * 3000, "😀" * 50, [],
        {}, [[]], [None], [""], [1, "a"], ["a"] * 200, [0] * 500, [-1], [2**40], {"a": 1},
        {"5": math.nan}, {"-1": 5}, {"k": 17}, {"json": {"$ref": "http://a"}}, [TURN] * 100,
        {"regex": "(a*)*b" * 20}, [{"role": "system"}], _nested(40),
        [{"role": "user", "content": [{"type": "image_url"}]}],
    )  # fmt: skip
    if depth < 3 and chance.random() < 0.2:
        size = chance.randrange(4)
        if chance.random() < 0.5:
            return [value(chance, depth + 1) for _ in range(size)]
        return {_text(chance): value(chance, depth + 1) for _ in range(size)}
    return chance.choice(plain)


def _nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


def _text(chance: random.Random) -> str:
    letters = "abcXYZ019 ./%\\\"'{}[]<>;:é😀\0\n\ud800"
    return "".join(chance.choices(letters, k=chance.randrange(12)))


def _header(chance: random.Random) -> str:
    odd = ("", "nan", "-1", "1e999", "0.5", "Bearer", "Bearer ", "x" * 5000, "ÿ", "[", "a b", "*/*",
           "99999999999", "gzip", "application/msgpack", "application/json; charset=x")  # fmt: skip
    return chance.choice(odd)


def _shuffled(chance: random.Random, body: dict[str, Any]) -> dict[str, Any]:
    kept = [
        name for name in body if chance.random() < 0.6 or name in ("model", "prompt", "messages")
    ]
    return {name: body[name] for name in chance.sample(kept, len(kept))}


def _mutated(chance: random.Random, body: bytes) -> bytes:
    data = bytearray(body)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(4)
        if kind == 0:
            del data[at : at + chance.randrange(1, 9)]
        elif kind == 1:
            data[at:at] = data[at : at + chance.randrange(1, 40)]
        elif kind == 2:
            data[at:at] = chance.randbytes(chance.randrange(1, 4))
        else:
            del data[at:]
    return bytes(data)


def _dumped(body: Any) -> bytes:
    return json.dumps(body).encode()


def _packed(body: Any) -> bytes:
    def packable(each: Any) -> Any:
        """msgpack has integers of 64 bits and text of whole characters."""
        if isinstance(each, dict):
            return {packable(name): packable(inner) for name, inner in each.items()}
        if isinstance(each, list):
            return [packable(inner) for inner in each]
        if isinstance(each, int) and not -(2**63) <= each < 2**64:
            return float(each) if abs(each) < 1e308 else math.inf
        if isinstance(each, str):
            return each.encode(errors="replace").decode()
        return each

    packed: bytes = msgpack.packb(packable(body))
    return packed
