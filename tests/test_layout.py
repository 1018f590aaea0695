"""The shape of the repository, held by tests: namespace, packaging and import direction."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("cluster", "actors", "kernels", "clients")

# Each folder may import itself and these.
ALLOWED = {
    "kernels": set[str](),
    "clients": set[str](),
    "actors": {"kernels"},
    "cluster": {"actors", "kernels", "clients"},
}
# Each heavy library has one home.
HOME = {"ray": {"cluster"}, "cupy": {"kernels"}, "httpx": {"clients"}}

SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def imported(path: Path) -> set[tuple[str, ...]]:
    """Every absolute import in a file, as name parts, function-level imports included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports in full, from outrider"
            names.add(node.module or "")
    return {tuple(name.split(".")) for name in names}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    folder = path.relative_to(ROOT).parts[0]
    for parts in imported(path):
        if parts[0] == "outrider":
            assert parts[1] in ALLOWED[folder] | {folder}, f"{folder} may not import {parts}"
        assert folder in HOME.get(parts[0], {folder}), f"{parts[0]} belongs in {HOME[parts[0]]}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_is_a_namespace_portion(folder: str) -> None:
    """A kernels/__init__.py here would shadow Hugging Face's `kernels` from the repository root."""
    assert not (ROOT / folder / "__init__.py").exists()
    assert (ROOT / ".types" / "outrider" / folder).resolve() == ROOT / folder


def test_every_folder_of_modules_is_packaged() -> None:
    """An undeclared folder works when editable and is missing from the wheel."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = {"outrider." + ".".join(p.parent.relative_to(ROOT).parts) for p in SOURCES}
    assert found == set(declared["packages"])
