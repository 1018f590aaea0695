"""Requests that nobody should send, each from its number: bytes on a connection of their own.

Bodies of every wrong kind, headers, halves, several at once, clients that leave, grammars that
unfold, bodies of 8 MB with 128 choices. Some turn out well-formed: those are answered.
"""

import asyncio
import contextlib
import json
import random
import string
from dataclasses import dataclass

PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/generate", "/tokenize", "/detokenize")
VALID = {
    "/v1/completions": {"model": "demo", "prompt": "def add(a, b):", "max_tokens": 3},
    "/v1/chat/completions": {
        "model": "demo",
        "messages": [{"role": "user", "content": "What is a list?"}],
        "max_tokens": 3,
    },
    "/v1/generate": {"model": "demo", "prompts": ["import os"], "max_tokens": 3},
    "/tokenize": {"model": "demo", "prompt": "import os"},
    "/detokenize": {"model": "demo", "tokens": [5, 6, 7]},
}
FIELDS = (
    "model", "prompt", "messages", "max_tokens", "temperature", "top_p", "top_k", "min_p", "n",
    "seed", "stop", "stream", "stream_options", "logprobs", "top_logprobs", "prompt_logprobs",
    "echo", "logit_bias", "tools", "tool_choice", "response_format", "structured_outputs",
    "prediction", "speculation", "resume", "cache_salt", "min_tokens", "stop_token_ids",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "user", "metadata", "suffix",
    "best_of", "functions", "store", "ignore_eos", "return_token_ids", "priority",
)  # fmt: skip
REGEXES = (
    "(a{1000}){1000}", "((a{100}){100}){100}", "(a|b|ab){1,9999}", "(.*a){40}", "a{99999}",
    "((a*)*)*b", "[a-z]{1,500}(x|y){1,500}", "(?:(?:a?){90}){90}", "(", "\\", "[z-a]", "",
    "(\\w+\\s?){1,900}", "^(?=a)b", "a" * 60_000,
)  # fmt: skip
LARKS = (
    "start: start start | \"a\" |", 'start: a\na: b a | b\nb: a b | "x" |', "start:", "start: /(/",
    'start: ("a"|"ab"|"abc")+ ("c"|"bc")+', 'start: x{0,9999}\nx: "y"', "%import common.NOTHING",
)  # fmt: skip
WAIT_S = 30.0  # for an answer
HEADERS = "host: 127.0.0.1\r\nconnection: close\r\n"


@dataclass
class Outcome:
    """What came of one."""

    kind: str
    statuses: tuple[int, ...]  # of each answer that came
    request: bytes  # its beginning
    was_left: bool = False  # by the client, before an answer

    @property
    def is_refused(self):
        """There is an answer, unless the client left, and none is a fault of the server's but one
        that says to come again.
        """
        return (self.was_left or bool(self.statuses)) and all(
            status < 500 or status == 503 for status in self.statuses
        )


def value(rng, depth=0):
    """Any JSON."""
    simple = (
        None, True, -1, 0, 2**63, -(2**70), 1e308, 0.1, "", "x" * rng.randint(1, 2000), "\ud83d",
        "\0", "ß世👩‍👩‍👧", [], {}, float("nan"), float("inf"),
    )  # fmt: skip
    if depth > 3 or rng.random() < 0.7:
        return rng.choice(simple)
    if rng.random() < 0.5:
        return [value(rng, depth + 1) for _ in range(rng.randint(0, 4))]
    return {rng.choice(FIELDS): value(rng, depth + 1) for _ in range(rng.randint(0, 4))}


def schema(rng):
    """Well-formed or not, small or wide or deep, or around itself."""
    deep = {"type": "string"}
    for _ in range(rng.randint(1, 400)):
        deep = {"type": "array", "items": deep}
    return rng.choice(
        (
            deep,
            {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(900)}},
            {"$ref": "#"},
            {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
            {"$ref": "https://example.org/s.json"},
            {"type": "string", "pattern": rng.choice(REGEXES)},
            {"enum": ["v" * 50 + str(i) for i in range(800)]},
            {"type": "array", "minItems": 10**9, "items": {"type": "integer"}},
            {"type": "string", "minLength": 10**7},
            {"type": rng.choice(["no", 5, None])},
            {"patternProperties": {rng.choice(REGEXES): {}}},
            value(rng),
        )
    )


def encoded(body):
    try:
        return json.dumps(body).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return b"{}"


def post(path, body, extra="", length=None):
    length = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\n{HEADERS}content-type: application/json\r\n"
    return f"{head}{extra}content-length: {length}\r\n\r\n".encode() + body


# each kind: (rng) → bytes to send, whether to leave without an answer


def wrong_field(rng):
    path = rng.choice(PATHS)
    body = VALID[path] | {rng.choice(FIELDS): value(rng) for _ in range(rng.randint(1, 3))}
    return post(path, encoded(body)), False


def wrong_body(rng):
    path = rng.choice(PATHS)
    body = rng.choice(
        (
            b"",
            rng.randbytes(rng.randint(1, 3000)),
            b"[" * rng.randint(1, 200_000),
            b'{"prompt":' * rng.randint(1, 3000),
            encoded(VALID[path])[: rng.randint(1, 40)],
            encoded(value(rng)),
            b'{"model":"demo","model":"demo","prompt":"a","prompt":5}',
            b"\xff\xfe" + encoded(VALID[path]),
            b'"' + b"\\u0000" * rng.randint(1, 5000) + b'"',
        )
    )
    return post(path, body), False


def wrong_header(rng):
    path = rng.choice(PATHS)
    body = encoded(VALID[path])
    noise = "".join(rng.choices(string.ascii_letters, k=rng.randint(1, 30_000)))
    extra = rng.choice(
        (
            f"x-noise: {noise}\r\n",
            "x-noise: 1\r\n" * rng.randint(1, 300),
            "x-request-timeout-s: " + rng.choice(["-1", "nan", "0", "1e9", "now"]) + "\r\n",
            "x-request-id: \x01\r\n",
            "authorization: Bearer " + noise[:200] + "\r\n",
            "transfer-encoding: chunked\r\n",
            "transfer-encoding: gzip\r\n",
            "expect: 100-continue\r\n",
            "upgrade: websocket\r\nconnection: upgrade\r\n",
            "content-length: 7\r\n",
            "content-encoding: gzip\r\n",
            "accept: application/msgpack\r\n",
            "bad header\r\n",
            "host: example.org\r\n",
            "origin: https://example.org\r\n",
        )
    )
    return post(path, body, extra), False


def wrong_line(rng):
    line = rng.choice(
        (
            "GET / HTTP/9.9", "POST", "\0\0\0", "GET /" + "a" * 20_000 + " HTTP/1.1",
            "BREW /v1/completions HTTP/1.1", "GET http://[ HTTP/1.1", "PRI * HTTP/2.0",
            "GET /v1/models%00 HTTP/1.1", "GET /../../etc HTTP/1.1", "DELETE /v1/models HTTP/1.1",
        )
    )  # fmt: skip
    return f"{line}\r\n{HEADERS}\r\n".encode("latin-1"), False


def half(rng):
    data = post((path := rng.choice(PATHS)), encoded(VALID[path]))
    return data[: rng.randint(0, len(data) - 1)], True


def wrong_length(rng):
    body = encoded(VALID[(path := rng.choice(PATHS))])
    length = rng.choice((len(body) - 3, len(body) + 50, -1, 10**12))
    return post(path, body, length=length), length > len(body)


def several(rng):
    parts = []
    for _ in range(rng.randint(2, 5)):
        data, _ = rng.choice((wrong_field, wrong_body, wrong_line))(rng)
        parts.append(data.replace(b"connection: close\r\n", b""))
    return b"".join(parts) + b"GET /health HTTP/1.1\r\n" + HEADERS.encode() + b"\r\n", False


def leaving(rng):
    path = rng.choice(PATHS[:3])
    body = VALID[path] | {"max_tokens": 200, "stream": rng.random() < 0.7, "n": rng.randint(1, 4)}
    return post(path, encoded(body)), True


def bomb(rng):
    grammar = rng.choice(
        (
            {"regex": rng.choice(REGEXES)},
            {"json": schema(rng)},
            {"grammar": rng.choice(LARKS)},
            {"choice": [str(value(rng)) for _ in range(rng.randint(0, 2500))]},
        )
    )
    return post(PATHS[0], encoded(VALID[PATHS[0]] | {"structured_outputs": grammar})), False


def huge(rng):
    size = rng.choice((1 << 20, 8 << 20, 9 << 20))
    field = rng.choice(
        (
            {"prompt": [1] * (size // 3)},
            {"prompt": "word " * (size // 5)},
            {"prompt": ["a"] * (size // 5)},
            {"prompt": "hi", "prediction": {"type": "content", "content": "b" * size}},
            {"prompt": "hi", "stop": ["s" * size]},
            {"prompt": "hi", "logit_bias": {str(i): 1 for i in range(size // 12)}},
        )
    )
    return post(PATHS[0], encoded(VALID[PATHS[0]] | {"n": 128} | field)), False


KINDS = {
    wrong_field: 30, wrong_body: 15, wrong_header: 12, wrong_line: 5, half: 8, wrong_length: 6,
    several: 6, leaving: 8, bomb: 9, huge: 1,
}  # fmt: skip


async def send(port, number, seed=0):
    """The outcome of one, which its number and the seed decide."""
    rng = random.Random(f"{seed} {number}")
    (kind,) = rng.choices(list(KINDS), list(KINDS.values()))
    data, leaves = kind(rng)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = bytearray()
    reading = asyncio.create_task(_read(reader, answer))  # who refuses may not wait for the rest
    try:
        writer.write(data)
        if leaves:
            await asyncio.sleep(rng.random())
        else:
            async with asyncio.timeout(WAIT_S):
                with contextlib.suppress(OSError):
                    await writer.drain()
                await reading
    except (OSError, TimeoutError):
        pass  # what was answered before counts
    finally:
        reading.cancel()
        writer.close()
    return Outcome(kind.__name__, statuses(bytes(answer)), data[:300], leaves)


async def _read(reader, answer):
    while piece := await reader.read(1 << 16):
        answer += piece


def statuses(answer):
    """Of each answer on a connection."""
    lines = [line for line in answer.split(b"\n") if line.startswith((b"HTTP/1.1 ", b"HTTP/1.0 "))]
    return tuple(int(line.split(b" ")[1]) for line in lines)


async def well_formed(port, number, seed=0):
    """As many requests of the same weight that are in order."""
    rng = random.Random(f"{seed} {number}")
    path = rng.choice(PATHS)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(post(path, encoded(VALID[path])))
    try:
        async with asyncio.timeout(WAIT_S):
            return Outcome("well_formed", statuses(await reader.read()), b"")
    finally:
        writer.close()
