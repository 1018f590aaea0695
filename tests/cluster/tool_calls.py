"""Calls as models write them."""

import json

ULM = '{"city": "Ulm"}'


def hermes(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def llama(name: str, parameters: str) -> str:
    return f'{{"name": "{name}", "parameters": {parameters}}}'


def mistral(name: str, arguments: str) -> str:
    return f"[TOOL_CALLS]{name}[ARGS]{arguments}"


def pythonic(name: str, arguments: str) -> str:
    given = ", ".join(f"{key}={value!r}" for key, value in json.loads(arguments).items())
    return f"[{name}({given})]"


def qwen3_coder(name: str, arguments: str) -> str:
    given = "".join(
        f"<parameter={key}>\n{value}\n</parameter>\n"
        for key, value in json.loads(arguments).items()
    )
    return f"<tool_call>\n<function={name}>\n{given}</function>\n</tool_call>"
