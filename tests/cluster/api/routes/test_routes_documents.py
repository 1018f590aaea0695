"""What the server says of itself, and text to ids and back."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from cluster.toy_engine import ToyEngine

from outrider.actors.transport.draft_stop import DraftStop
from outrider.cluster.api.field_table import table
from outrider.cluster.api.service import Service


@pytest.mark.parametrize("prefix", ["", "/v1"])
async def test_there_and_back(http: httpx.AsyncClient, prefix: str) -> None:
    reply = (await http.post(f"{prefix}/tokenize", json={"prompt": "hi"})).json()
    assert reply == {"count": 2, "max_model_len": 64, "tokens": [104, 105]}
    back = await http.post(f"{prefix}/detokenize", json={"tokens": reply["tokens"]})
    assert back.json() == {"prompt": "hi"}


async def test_the_ids_of_a_chat(http: httpx.AsyncClient, engine: ToyEngine) -> None:
    messages = [{"role": "user", "content": "hi"}]
    tools = [{"type": "function", "function": {"name": "f"}}]
    body = {"model": "toy", "messages": messages, "tools": tools}
    tokens = (await http.post("/tokenize", json=body)).json()["tokens"]
    await http.post("/v1/generate", json=body | {"max_tokens": 1})
    assert tuple(tokens) == engine.requests[0].prompt_ids


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": []}, "prompt"),
        ("/tokenize", {"prompt": 1}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [128]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
    ],
)
async def test_what_cannot_be_turned(
    http: httpx.AsyncClient, path: str, body: dict[str, Any], param: str
) -> None:
    reply = await http.post(path, json=body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


async def test_another_model_is_not_served(http: httpx.AsyncClient) -> None:
    for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [1]})):
        assert (await http.post(path, json=body | {"model": "other"})).status_code == 404


async def test_capabilities(http: httpx.AsyncClient, service: Service, engine: ToyEngine) -> None:
    service.response_template = "hermes"
    told = (await http.get("/capabilities")).json()
    assert told["model"]["fingerprint"] == "toy-1"
    speculation = told["speculation"]
    assert speculation.pop("k_reasons")["request"] == "The request gave its own k."
    assert set(speculation.pop("draft_stops")) == {stop.value for stop in DraftStop}
    assert speculation == {
        "drafters": ["prediction", "draft", "ngram"],
        "verification_modes": ["coupled", "rejection"],
        "default_verification": "coupled",
        "max_k": 16,
    }
    assert told["structured_outputs"] == ["json", "regex", "choice", "grammar"]
    assert told["tool_format"] == "hermes"
    assert told["prefix_cache"] is True
    assert told["limits"]["prompts"] == service.limits.max_prompts
    parameters = told["endpoints"]["POST /v1/completions"]
    silent = {name for name, field in parameters.items() if not field["has_effect"]}
    everywhere = {"user", "metadata", "store", "service_tier", "safety_identifier"}
    assert silent == everywhere | {"prompt_cache_key"}
    assert {"min_p", "logit_bias", "structured_outputs", "prediction"} <= set(parameters) - silent
    assert told["endpoints"]["GET /health"] == {}
    engine.info.draft, engine.info.drafters = None, ("prediction",)
    assert (await http.get("/capabilities")).json()["speculation"]["drafters"] == ["prediction"]


async def test_every_documented_parameter_is_accepted(http: httpx.AsyncClient) -> None:
    """Null is every optional field's default: a name that the schema does not know is 400."""
    endpoints = (await http.get("/capabilities")).json()["endpoints"]
    required = {
        "/v1/completions": {"model": "toy", "prompt": "a"},
        "/v1/chat/completions": {"model": "toy", "messages": [{"role": "user", "content": "a"}]},
        "/v1/generate": {"model": "toy", "prompts": ["a"]},
    }
    for path, body in required.items():
        fields = dict.fromkeys(endpoints[f"POST {path}"]) | body
        assert (await http.post(path, json=fields)).status_code == 200, path


def references(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(references, value))
    if not isinstance(value, dict):
        return set()
    own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
    return own.union(*map(references, value.values()))


async def test_the_description_is_complete(http: httpx.AsyncClient) -> None:
    described = (await http.get("/openapi.json")).json()
    schemas = described["components"]["schemas"]
    assert references(described) <= {f"#/components/schemas/{name}" for name in schemas}
    for path in (
        "/v1/completions", "/v1/chat/completions", "/v1/generate", "/tokenize", "/detokenize",
        "/v1/tokenize", "/v1/detokenize",
    ):  # fmt: skip
        operation = described["paths"][path]["post"]
        body = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        assert "model" in schemas[body.rpartition("/")[2]]["properties"]
        assert "$ref" in operation["responses"]["200"]["content"]["application/json"]["schema"]
        for status in ("4XX", "5XX"):
            refusal = operation["responses"][status]["content"]["application/json"]["schema"]
            assert refusal == {"$ref": "#/components/schemas/ErrorReply"}
    native = described["paths"]["/v1/generate"]["post"]
    assert "application/msgpack" in native["requestBody"]["content"]
    for path in ("/v1/models", "/v1/models/{name}", "/capabilities"):
        answer = described["paths"][path]["get"]["responses"]["200"]
        assert "$ref" in answer["content"]["application/json"]["schema"]


def test_the_application_imports_no_models_library() -> None:
    """A replica goes without torch, which must be decided before transformers looks for it."""
    code = "import outrider.cluster.api.app, sys; print({'torch', 'transformers'} & {*sys.modules})"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert told.stdout == "set()\n", told.stderr


def test_the_table_of_fields_is_up_to_date() -> None:
    file = Path(__file__).parents[4] / "clients" / "FIELDS.md"
    assert file.read_text(encoding="utf-8") == table(), (
        "run python -m outrider.cluster.api.field_table clients/FIELDS.md"
    )


def test_the_table_says_who_takes_what() -> None:
    lines = {line.split("|")[1].strip(" `"): line for line in table().splitlines() if "|" in line}
    assert lines["user"].count("○") == 3
    assert lines["messages"].count("●") == 3
    assert all(line.split("|")[-2].strip() for line in lines.values())
