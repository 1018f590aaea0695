"""Calls as models write them."""

ULM = '{"city": "Ulm"}'


def hermes(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def llama(name: str, parameters: str) -> str:
    return f'{{"name": "{name}", "parameters": {parameters}}}'
