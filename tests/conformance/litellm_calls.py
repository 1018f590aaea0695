"""litellm's part of outside_clients.py, which runs it with a server's URL where litellm is."""

import asyncio
import json
import sys

import litellm
from outside_clients import check

MESSAGES = [{"role": "user", "content": "What does str.split do?"}]
PROMPT = "def add(a, b):"


class LiteLLM:
    """litellm's calls, with the server's address in them."""

    def __init__(self, url):
        self._address = {"api_base": f"{url}/v1", "api_key": "none", "max_retries": 0}

    def chat(self, model="openai/demo", **fields):
        fields = {"messages": MESSAGES, "max_tokens": 24, **fields}
        return litellm.completion(model=model, **self._address, **fields)

    def achat(self, **fields):
        fields = {"model": "openai/demo", "messages": MESSAGES, "max_tokens": 24, **fields}
        return litellm.acompletion(**self._address, **fields)

    def text(self, model="text-completion-openai/demo", **fields):
        fields = {"prompt": PROMPT, "max_tokens": 24, **fields}
        return litellm.text_completion(model=model, **self._address, **fields)


def check_texts(client):
    """Whole answers: seed, speculation, n, stop, usage, batches, concurrency."""
    seeded = {"seed": 7, "temperature": 1.0}
    reply = client.chat(**seeded)
    text = reply.choices[0].message.content
    check("litellm completion", bool(text) and reply.choices[0].finish_reason is not None, reply)
    usage = reply.usage
    parts = (usage.prompt_tokens, usage.completion_tokens)
    check("litellm usage", min(parts) > 0 and sum(parts) == usage.total_tokens, usage)
    again, other = client.chat(**seeded), client.chat(seed=8, temperature=1.0)
    check("litellm seed", again.choices[0].message.content == text, again)
    check("litellm another seed", other.choices[0].message.content != text, other)
    plain = client.chat(**seeded, extra_body={"speculation": {"enabled": False}})
    check("litellm speculation off", plain.choices[0].message.content == text, plain)
    many = [choice.message.content for choice in client.chat(**seeded, n=3).choices]
    check("litellm n", many[0] == text and len(set(many)) == 3, many)

    async def together():
        return await asyncio.gather(*(client.achat(**seeded) for _ in range(4)))

    texts = {each.choices[0].message.content for each in asyncio.run(together())}
    check("litellm acompletion, four at once", texts == {text}, texts)
    whole = client.text(temperature=0).choices[0].text
    check("litellm text_completion", bool(whole), whole)
    stop = whole[len(whole) // 2 :][:3]
    cut = client.text(temperature=0, stop=[stop]).choices[0]
    expected = (whole[: whole.index(stop)], "stop")
    check("litellm stop", (cut.text, cut.finish_reason) == expected, cut)
    batch = client.text(temperature=0, prompt=[PROMPT, "import os"])
    check("litellm two prompts", [len(batch.choices), batch.choices[0].text] == [2, whole], batch)


def check_streams(client):
    """Pieces add up to the whole, and usage comes last when asked for."""
    fields = {"seed": 7, "temperature": 1.0}
    whole = client.chat(**fields)
    events = list(client.chat(**fields, stream=True, stream_options={"include_usage": True}))
    pieces = [each.choices[0].delta.content for each in events if each.choices]
    text = "".join(piece for piece in pieces if piece)
    check("litellm completion stream", text == whole.choices[0].message.content, pieces)
    got, expected = events[-1].usage, whole.usage
    counts = [(each.prompt_tokens, each.completion_tokens) for each in (got, expected)]
    check("litellm stream usage", counts[0] == counts[1], counts)
    whole = client.text(**fields).choices[0].text
    pieces = [each.choices[0].text for each in client.text(**fields, stream=True)]
    joined = "".join(piece for piece in pieces if piece)
    check("litellm text_completion stream", joined == whole, pieces)


def is_greedy(token):
    """Whether three alternatives are told and the token is the first of them."""
    first, *others = token.top_logprobs
    is_equal = token.logprob == first.logprob
    return token.token == first.token and is_equal and len(others) == 2


def check_forms(client):
    """Log-probabilities and JSON by a schema."""
    reply = client.chat(temperature=0, logprobs=True, top_logprobs=3)
    content = reply.choices[0].logprobs.content
    check("litellm logprobs, one a token", len(content) == reply.usage.completion_tokens, content)
    wrong = [token for token in content if not is_greedy(token)]
    check("litellm top_logprobs", not wrong, wrong)
    reply = client.text(temperature=0, logprobs=2)
    found = reply.choices[0].logprobs
    names = found["tokens"] if isinstance(found, dict) else found.tokens
    check("litellm text logprobs", "".join(names) == reply.choices[0].text, found)
    schema = {
        "type": "object",
        "properties": {"kind": {"enum": ["list", "dict"]}},
        "required": ["kind"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "kind", "schema": schema}}
    text = client.chat(response_format=form, seed=1, max_tokens=64).choices[0].message.content
    check("litellm json_schema", json.loads(text)["kind"] in ("list", "dict"), text)


def check_errors(client):
    """Ours become litellm's exceptions."""
    cases = [
        ("an unknown model", litellm.NotFoundError, lambda: client.chat(model="openai/other")),
        ("no such temperature", litellm.BadRequestError, lambda: client.chat(temperature=-1)),
        (
            "an unknown field",
            litellm.BadRequestError,
            lambda: client.chat(extra_body={"colour": "red"}),
        ),
        (
            "a prompt too long",
            litellm.BadRequestError,
            lambda: client.text(prompt="word " * 3000),
        ),
        (
            "an unknown model of text_completion",
            litellm.NotFoundError,
            lambda: client.text(model="text-completion-openai/other"),
        ),
    ]
    for name, expected, call in cases:
        try:
            got = call()
        except Exception as error:
            got = error
        check(f"litellm {expected.__name__} for {name}", isinstance(got, expected), got)


def main():
    litellm.suppress_debug_info = True  # no advertisement with every error that we provoke
    client = LiteLLM(sys.argv[1])
    for part in (check_texts, check_streams, check_forms, check_errors):
        part(client)


if __name__ == "__main__":
    main()
