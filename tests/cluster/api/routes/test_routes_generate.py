"""The native endpoint: JSON and msgpack, whole and streamed, resumed."""

import io
import json
from typing import Any

import httpx
import msgpack
import pytest
from cluster.sse import data_lines, without_times
from cluster.toy_engine import LOGPROB, ToyEngine
from pydantic import TypeAdapter

from outrider.actors.errors import WorkerLost
from outrider.clients.schema.generate import Event, Generated

URL = "/v1/generate"
BODY = {"model": "toy", "prompts": ["hi"], "seed": 0, "max_tokens": 5}
MSGPACK = {"content-type": "application/msgpack"}
CHAT = [{"role": "user", "content": "hi"}]
ENDS = {"seed": 0, "fingerprint": "toy-1"}
RESUME = {"generated_ids": [99, 100], "text_len": 2, "seed": 0, "fingerprint": "toy-1"}


async def streamed(http: httpx.AsyncClient, body: dict[str, Any], **extra: Any) -> list[Any]:
    """The objects of a stream of JSON, each as its schema says."""
    objects = [json.loads(line) for line in await data_lines(http, URL, body)]
    for item in objects:
        TypeAdapter[Any](Event).validate_python(item, extra="forbid")
    return objects


async def test_an_answer(http: httpx.AsyncClient) -> None:
    reply = (await http.post(URL, json=BODY)).json()
    Generated.model_validate(reply, extra="forbid")
    assert reply["choices"] == [
        {
            "index": 0,
            "prompt_index": 0,
            "choice": 0,
            "text": "cdefg",
            "token_ids": [99, 100, 101, 102, 103],
            "finish_reason": "length",
            "logprobs": None,
            "top_logprobs": None,
            "prompt_logprobs": None,
        }
    ]
    assert (reply["seed"], reply["fingerprint"], reply["model"]) == (0, "toy-1", "toy")
    assert reply["usage"]["total_tokens"] == 7
    assert reply["metrics"]["speculative_decoding"]["num_rounds"] == 3


async def test_many_prompts_with_many_choices(http: httpx.AsyncClient) -> None:
    for prompts in (["a", "bc"], [[97], [98, 99]]):
        choices = (await http.post(URL, json=BODY | {"prompts": prompts, "n": 2})).json()["choices"]
        places = [(c["index"], c["prompt_index"], c["choice"]) for c in choices]
        assert places == [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1)]


async def test_a_chat_with_tools(http: httpx.AsyncClient, engine: ToyEngine) -> None:
    body = {"model": "toy", "messages": CHAT, "max_tokens": 1}
    tool = {"type": "function", "function": {"name": "f"}}
    reply = await http.post(URL, json=body | {"tools": [tool]})
    (choice,) = reply.json()["choices"]
    turn = {"role": "assistant", "content": choice["text"], "refusal": None}
    assert choice["message"] == turn
    assert engine.tokenizer.decode(engine.requests[0].prompt_ids) == "[f]<user>hi"


async def test_logprobs(http: httpx.AsyncClient) -> None:
    body = BODY | {"max_tokens": 2, "logprobs": 1, "prompt_logprobs": 1}
    (choice,) = (await http.post(URL, json=body)).json()["choices"]
    assert choice["logprobs"] == [LOGPROB, LOGPROB]
    assert choice["top_logprobs"] == [[[99, LOGPROB]], [[100, LOGPROB]]]
    told = [{"token_id": 105, "logprob": LOGPROB, "top": [[105, LOGPROB]]}]
    assert choice["prompt_logprobs"] == told
    _, chunk, _ = await streamed(http, body)
    assert {name: chunk[name] for name in ("logprobs", "top_logprobs", "prompt_logprobs")} == {
        name: choice[name] for name in ("logprobs", "top_logprobs", "prompt_logprobs")
    }


async def test_a_stream_is_start_chunks_end(http: httpx.AsyncClient) -> None:
    whole = (await http.post(URL, json=BODY)).json()
    start, *chunks, end = await streamed(http, BODY)
    assert start | {"id": "", "created": 0} == {
        "type": "start",
        "id": "",
        "created": 0,
        "model": "toy",
        "fingerprint": "toy-1",
        "seed": 0,
        "num_choices": 1,
        "num_prompt_tokens": [2],
    }
    assert chunks[0] == {
        "type": "chunk",
        "index": 0,
        "text": "cd",
        "token_ids": [99, 100],
        "origins": ["draft", "recovered"],
        "num_drafted": 4,
        "num_accepted": 1,
        "k_reason": "fixed",
        "finish_reason": None,
    }
    assert [chunk["finish_reason"] for chunk in chunks] == [None, None, "length"]
    assert "".join(chunk["text"] for chunk in chunks) == whole["choices"][0]["text"]
    assert (end["type"], end["usage"]) == ("end", whole["usage"])
    assert without_times(end["metrics"]) == without_times(whole["metrics"])


async def test_token_texts(http: httpx.AsyncClient) -> None:
    body = BODY | {"return_token_texts": True}
    (choice,) = (await http.post(URL, json=body)).json()["choices"]
    assert choice["token_texts"] == list("cdefg")
    assert choice["special"] == [False, False, True, False, False]
    texts = [chunk["token_texts"] for chunk in (await streamed(http, body))[1:-1]]
    assert texts == [["c", "d"], ["e", "f"], ["g"]]
    special = [chunk["special"] for chunk in (await streamed(http, body))[1:-1]]
    assert special == [[False, False], [True, False], [False]]


async def test_trees_are_told_where_asked_for(http: httpx.AsyncClient) -> None:
    chunk = (await streamed(http, BODY | {"return_trees": True}))[1]
    assert chunk["tree"] == {
        "token_ids": [99, 99, 99, 99],
        "token_texts": ["c", "c", "c", "c"],
        "parents": [-1, 0, 1, 2],
        "drafters": ["draft"] * 4,
        "accepted": [0],
    }
    assert all("tree" not in chunk for chunk in await streamed(http, BODY))


async def test_msgpack_in_and_out(http: httpx.AsyncClient) -> None:
    plain = (await http.post(URL, json=BODY)).json()
    reply = await http.post(URL, content=msgpack.packb(BODY), headers=MSGPACK)
    assert reply.headers["content-type"] == "application/msgpack"
    assert msgpack.unpackb(reply.content)["choices"] == plain["choices"]
    stream = await http.post(URL, content=msgpack.packb(BODY | {"stream": True}), headers=MSGPACK)
    assert stream.headers["content-type"] == "application/msgpack"
    objects = list(msgpack.Unpacker(io.BytesIO(stream.content)))
    for item in objects:
        TypeAdapter[Any](Event).validate_python(item, extra="forbid")
    again = await streamed(http, BODY)
    assert objects[1:-1] == again[1:-1]
    assert without_times(objects[-1]["metrics"]) == without_times(again[-1]["metrics"])


@pytest.mark.parametrize(
    ("packs", "accept", "kind"),
    [
        (False, None, "application/json"),
        (False, "application/msgpack", "application/msgpack"),
        (True, "application/json", "application/json"),
        (True, "*/*", "application/msgpack"),
    ],
)
async def test_the_answer_is_of_the_kind_accepted(
    http: httpx.AsyncClient, packs: bool, accept: str | None, kind: str
) -> None:
    headers = {"content-type": "application/msgpack" if packs else "application/json"}
    if accept is not None:
        headers["accept"] = accept
    content = msgpack.packb(BODY) if packs else json.dumps(BODY)
    reply = await http.post(URL, content=content, headers=headers)
    assert reply.headers["content-type"] == kind


async def test_a_logit_bias_in_msgpack_may_have_ids_as_keys(
    http: httpx.AsyncClient, engine: ToyEngine
) -> None:
    for bias in ({5: 1}, {"5": 1}):
        body = msgpack.packb(BODY | {"logit_bias": bias})
        assert (await http.post(URL, content=body, headers=MSGPACK)).status_code == 200
    assert [r.sampling.logit_bias for r in engine.requests] == [((5, 1.0),)] * 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xc1",
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        msgpack.packb({"model": b"toy"}),
        msgpack.packb(msgpack.ExtType(5, b"x")),
        msgpack.packb(BODY) + b"\x00",
        msgpack.packb([1]),
    ],
    ids=lambda content: str(content)[:20],
)
async def test_bad_msgpack(http: httpx.AsyncClient, content: bytes) -> None:
    reply = await http.post(URL, content=content, headers=MSGPACK)
    assert reply.status_code == 400
    assert reply.json()["error"]["message"].startswith("Got ")


async def test_msgpack_is_for_the_native_endpoint_only(http: httpx.AsyncClient) -> None:
    body = msgpack.packb({"model": "toy", "prompt": "hi"})
    reply = await http.post("/v1/completions", content=body, headers=MSGPACK)
    assert (reply.status_code, reply.json()["error"]["code"]) == (415, "unsupported_media_type")


async def test_a_resumed_answer_goes_on(http: httpx.AsyncClient, engine: ToyEngine) -> None:
    whole = (await http.post(URL, json=BODY)).json()
    body = {name: value for name, value in BODY.items() if name != "seed"} | {"resume": RESUME}
    rest = (await http.post(URL, json=body)).json()
    assert rest["choices"][0]["text"] == whole["choices"][0]["text"][2:]
    assert rest["choices"][0]["token_ids"] == whole["choices"][0]["token_ids"][2:]
    assert rest["usage"] == whole["usage"]  # as if nothing had happened
    resumed = engine.requests[1].resumed
    assert resumed is not None
    assert (resumed.output_ids, resumed.text_len, rest["seed"]) == ((99, 100), 2, 0)
    start, *_, end = await streamed(http, body)
    assert (start["seed"], end["usage"]) == (0, whole["usage"])


async def test_every_choice_of_an_answer_goes_on(http: httpx.AsyncClient) -> None:
    """One has just begun, one is under way, and one is complete."""
    body = BODY | {"n": 3, "seed": 0}
    whole = (await http.post(URL, json=body)).json()
    nums = [0, 2, len(whole["choices"][2]["token_ids"])]
    choices = [
        {"generated_ids": each["token_ids"][:n], "text_len": n}
        for each, n in zip(whole["choices"], nums, strict=True)
    ]
    rest = (await http.post(URL, json=body | {"resume": ENDS | {"choices": choices}})).json()
    for before, after, n in zip(whole["choices"], rest["choices"], nums, strict=True):
        assert after["token_ids"] == before["token_ids"][n:]
        assert after["text"] == before["text"][n:]
        assert after["finish_reason"] == before["finish_reason"]
    assert rest["usage"] == whole["usage"]


async def test_a_resume_elsewhere(http: httpx.AsyncClient) -> None:
    body = BODY | {"resume": RESUME | {"fingerprint": "other"}}
    reply = await http.post(URL, json=body)
    assert reply.status_code == 409
    error = reply.json()["error"]
    assert (error["code"], error["param"]) == ("fingerprint_mismatch", "resume.fingerprint")
    assert "expected 'toy-1'" in error["message"]
    assert (await http.post(URL, json=body | {"allow_inexact": True})).status_code == 200


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"prompts": None}, "prompts", "neither"),
        ({"messages": CHAT}, "prompts", "both"),
        ({"prompts": []}, "prompts", "0 prompts"),
        ({"prompts": ["a", ""]}, "prompts", "index 1"),
        ({"prompts": "hi"}, "prompts", "a list of strings"),
        ({"prompts": [[200]]}, "prompt", "out of range"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "messages"),
        ({"resume": RESUME, "n": 2}, "resume", "Got resume of 1 for 2 choices"),
        ({"resume": RESUME, "prompts": ["a", "b"]}, "resume", "of 1 for 2 choices"),
        ({"resume": RESUME | {"choices": []}}, "resume.generated_ids", "expected one of the two"),
        ({"resume": RESUME, "seed": 1}, "seed", "resume.seed=0"),
        ({"resume": RESUME | {"text_len": -1}}, "resume.text_len", "0 or more"),
        ({"resume": RESUME | {"generated_ids": [128]}}, "resume.generated_ids", "id 128"),
        ({"resume": {}}, "resume.seed", "Got no"),
        ({"resume": ENDS}, "resume.generated_ids", "expected one of the two"),
        ({"logprobs": True}, "logprobs", "0 to 20"),
        ({"stop": ["a"] * 65}, "stop", "at most 64"),
        ({"user": "u"}, "user", "unknown field"),
    ],
    ids=str,
)
async def test_a_bad_field(
    http: httpx.AsyncClient, change: dict[str, Any], param: str, words: str
) -> None:
    for extra in ({}, {"stream": True}):
        reply = await http.post(URL, json=BODY | extra | change)
        assert reply.status_code == 400, reply.text
        assert reply.json()["error"]["param"] == param
        assert words in reply.json()["error"]["message"]


async def test_a_failure_ends_the_stream(http: httpx.AsyncClient, engine: ToyEngine) -> None:
    engine.failure = WorkerLost("The target is gone")
    start, chunk, error = await streamed(http, BODY)
    assert (start["type"], chunk["type"]) == ("start", "chunk")
    assert error["error"]["code"] == "worker_lost"


async def test_choices_of_a_prompt_share_its_ids(
    http: httpx.AsyncClient, engine: ToyEngine
) -> None:
    body = BODY | {
        "prompts": [[1, 2, 3]],
        "n": 4,
        "prediction": {"type": "content", "content": "ab"},
    }
    assert (await http.post(URL, json=body)).status_code == 200
    assert len({id(request.prompt_ids) for request in engine.requests}) == 1
    assert len({id(request.prediction_ids) for request in engine.requests}) == 1
    assert engine.room_asked == [4]


async def test_a_prompt_that_cannot_fit_is_refused_by_its_characters(
    http: httpx.AsyncClient, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 MB of it took 15 s of CPU, to be refused."""

    def encode(text: str, adds_special: bool = True) -> list[int]:
        raise AssertionError("it was tokenised")

    monkeypatch.setattr(engine.tokenizer, "encode", encode)
    text = "a" * (engine.info.max_model_len * engine.tokenizer.longest_token + 1)
    for field, value in {
        "prompts": [text],
        "prediction": {"type": "content", "content": text},
    }.items():
        body = BODY | {"prompts": [[1, 2]]} | {field: value}
        reply = await http.post(URL, json=body)
        assert reply.status_code == 400
        assert f"Got {len(text)} characters in " in reply.json()["error"]["message"]
