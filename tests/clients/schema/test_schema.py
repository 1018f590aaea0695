"""The wire types: what they take without a server, and that they need nothing heavy."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from outrider.clients.schema.openai_requests import ChatRequest, CompletionRequest


def test_they_import_without_the_server_side() -> None:
    code = (
        "import sys, outrider.clients.schema.openai_requests;"
        "import outrider.clients.schema.openai_responses;"
        "print(*{'torch', 'ray', 'transformers', 'fastapi', 'cupy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    ("stop", "stops"), [(None, ()), ("a", ("a",)), (["a", "b"], ("a", "b")), ([], ())]
)
def test_stops_in_every_spelling(stop: object, stops: tuple[str, ...]) -> None:
    body = {"model": "m", "prompt": "p", "stop": stop}
    assert CompletionRequest.model_validate(body).stops == stops


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        ({}, None),
        ({"max_tokens": 3}, 3),
        ({"max_completion_tokens": 4}, 4),
        ({"max_tokens": 5, "max_completion_tokens": 5}, 5),
    ],
)
def test_the_limit_by_either_name(limits: dict[str, int], limit: int | None) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], **limits}
    assert ChatRequest.model_validate(body).token_limit == limit


def test_a_request_does_not_change_after_it_is_read() -> None:
    request = CompletionRequest.model_validate({"model": "m", "prompt": "p"})
    with pytest.raises(ValidationError):
        request.model = "other"  # type: ignore[misc]


def test_neutral_values_only() -> None:
    for value in (None, 1):
        CompletionRequest.model_validate({"model": "m", "prompt": "p", "best_of": value})
    with pytest.raises(ValidationError, match="anything else is not supported"):
        CompletionRequest.model_validate({"model": "m", "prompt": "p", "best_of": 2})
