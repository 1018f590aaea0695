"""The fields of every endpoint as one table, written from the schemas that bodies are read by.

`python -m outrider.cluster.api.field_table clients/FIELDS.md` writes it; a test holds it so.
"""

import sys
from pathlib import Path
from typing import Final

from outrider.clients.schema.unsupported import WITHOUT_EFFECT
from outrider.cluster.api.app import create_app
from outrider.cluster.api.routes.openapi import body_of, described
from outrider.cluster.api.service import Service

COLUMNS: Final = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/responses": "responses",
    "/v1/generate": "generate",
    "/tokenize": "tokenize",
    "/detokenize": "detokenize",
}
HEAD: Final = f"""# Fields of requests

Written by `python -m outrider.cluster.api.field_table clients/FIELDS.md` from the schemas that
bodies are read by. `/capabilities` of a running server says the same.

● is honoured. ○ is accepted because clients send it, and has no effect. Where there is neither, the
field is answered with 400 and its name.

| field | {" | ".join(COLUMNS.values())} | takes |
|---|{":-:|" * len(COLUMNS)}---|
"""
Row = dict[str, tuple[str, str]]  # by endpoint: its mark, and what it takes


def table() -> str:
    """The document."""
    rows: dict[str, Row] = {}
    operations = described(create_app(Service("demo")))["paths"]
    for path in COLUMNS:
        body = body_of(operations[path]["post"])
        assert body is not None, f"{path} takes a body"
        for name, field in body.model_fields.items():
            mark = "○" if WITHOUT_EFFECT in field.metadata else "●"
            rows.setdefault(field.alias or name, {})[path] = mark, field.description or ""
    return HEAD + "".join(_line(name, row) for name, row in sorted(rows.items()))


def _line(name: str, row: Row) -> str:
    marks = " | ".join(row[path][0] if path in row else "" for path in COLUMNS)
    takers: dict[str, list[str]] = {}  # endpoints by what they take
    for path, (_, takes) in row.items():
        takers.setdefault(takes, []).append(COLUMNS[path])
    told = "; ".join(
        takes if len(takers) == 1 else f"{takes} ({', '.join(names)})"
        for takes, names in takers.items()
    ).replace("|", "\\|")
    return f"| `{name}` | {marks} | {told} |\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(table(), encoding="utf-8")
