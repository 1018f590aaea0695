"""Requests made from our own OpenAPI description: no 5xx, and every reply as it is described."""

from typing import Any

import msgpack
import schemathesis
from cluster.toy_engine import CONTEXT_LEN, ToyEngine
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import CHECKS, load_all_checks

from outrider.cluster.api.app import create_app
from outrider.cluster.api.service import Service

NOT_MSGPACK = b"\xc1"  # the one byte that msgpack never uses


@schemathesis.serializer("application/msgpack")
def pack(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """A body as msgpack, which knows no number beyond 64 bits."""
    try:
        return bytes(msgpack.packb(value))
    except (OverflowError, TypeError, ValueError):
        return NOT_MSGPACK


@schemathesis.deserializer("application/msgpack")
def unpack(context: schemathesis.DeserializationContext, response: schemathesis.Response) -> Any:
    return msgpack.unpackb(response.content)


load_all_checks()
# The description gives types; ranges are in words, so that a body it allows may be refused.
SKIPPED = CHECKS.get_by_names(["positive_data_acceptance"])

APP = create_app(Service("toy", engine=ToyEngine(), response_template="hermes"))
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", APP)


@SCHEMA.parametrize()
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_replies_are_as_described(case: Case) -> None:
    body = case.body
    if isinstance(body, dict) and isinstance(body.get("model"), str):
        body["model"] = "toy"  # else all that would be seen is that the model is unknown
        for limit in ("max_tokens", "max_completion_tokens"):
            if isinstance(body.get(limit), int) and body[limit] > CONTEXT_LEN // 2:
                body[limit] = 8
    case.call_and_validate(excluded_checks=SKIPPED)
