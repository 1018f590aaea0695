"""The facts in docstrings of the standard library, read from its sources: nothing is imported.

Files with a copyright notice of their own are left out; the rest is the PSF's.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from outrider.cluster.demo.corpus.fact import Fact, Kind, sentences
from outrider.cluster.demo.corpus.prose import spoken

SKIPPED = frozenset(
    "test tests idlelib lib2to3 ensurepip encodings pydoc_data turtledemo distutils site-packages "
    "dist-packages posixpath ntpath genericpath nturl2path antigravity this".split()
)
COPYRIGHT = re.compile(r"copyright|\(c\) \d{4}", re.IGNORECASE)
FIELDS = re.compile(r"\s[:@](?:param|returns?|raises?|type|rtype)\b|^>>> ", re.MULTILINE)
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def facts(library: Path) -> Iterator[Fact]:
    """Of all public modules under the folder, in order of their names."""
    for path in sorted(library.rglob("*.py")):
        parts = path.relative_to(library).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if SKIPPED & set(parts) or any(part.startswith("_") for part in parts):
            continue
        source = path.read_text("utf-8", "replace")
        notices = [line for line in source.splitlines() if COPYRIGHT.search(line)]
        if all("Python Software Foundation" in line for line in notices):
            yield from _facts(ast.parse(source), ".".join(parts))


def _facts(node: ast.AST, owner: str) -> Iterator[Fact]:
    for inner in ast.iter_child_nodes(node):
        if not isinstance(inner, Definition) or inner.name.startswith("_"):
            continue
        name = f"{owner}.{inner.name}"
        if said := sentences(_paragraphs(inner)):
            is_class = isinstance(inner, ast.ClassDef)
            yield Fact(
                name, Kind.CLASS if is_class else Kind.CALLABLE, _signature(name, inner), said
            )
        if isinstance(inner, ast.ClassDef):
            yield from _facts(inner, name)


def _paragraphs(definition: Definition) -> list[str]:
    """Of its docstring, without the list of its parameters."""
    said = FIELDS.split(ast.get_docstring(definition) or "")[0]
    return spoken(said.split("\n\n"))


def _signature(name: str, definition: Definition) -> str:
    if isinstance(definition, ast.ClassDef):
        return name
    return f"{name}({ast.unparse(definition.args)})"
