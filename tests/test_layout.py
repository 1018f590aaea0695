"""The shape of the repository, held by tests: namespace, packaging and import direction."""

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from outrider.actors.lookahead.reason import Reason
from outrider.actors.transport.draft_stop import DraftStop

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


# The house: what each of these checks must also catch is planted in the tests below it.

# Where a heavy library may be imported: by path prefix.
PREFIXES = {
    "ray": ("cluster/",),
    "cupy": ("kernels/cuda/",),
    "httpx": ("clients/",),
    **dict.fromkeys(
        ("torch", "transformers"),
        (
            "actors/",
            "kernels/cuda/",
            "kernels/torch_backend.py",
            "cluster/api/response/reply/",
            "cluster/bench/",
            "cluster/demo/",
        ),
    ),
}
# The floors of actors/: a room imports rooms of lower floors only.
FLOORS = {
    "engine": 8,
    "executor": 7,
    "spec_decode": 6,
    "workers": 6,
    "heads": 5,
    "trees": 5,
    "lookahead": 4,
    "text": 4,
    "scheduling": 3,
    "sizing": 3,
    "reference": 3,
    "telemetry": 2,
    "transport": 2,
    "runner": 2,
    "errors": 1,
}
MOST_MODULES = 12  # in one folder
# Public class names that mean more than one thing, and why they may.
SHARED_NAMES = {
    "DeadlineExceeded": "what the server answers and the client raises are one error",
    "Driver": "each foreign engine's driver runs alone, by its path, in another Python",
}

Tree = dict[str, str]  # of sources, by path
PRODUCT: Tree = {str(path.relative_to(ROOT)): path.read_text() for path in SOURCES}


def imports_of(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def misplaced_libraries(tree: Tree) -> list[str]:
    return [
        f"{path} imports {name}"
        for path, source in tree.items()
        for name in sorted(imports_of(source))
        if not path.startswith(PREFIXES.get(name.split(".")[0], ("",)))
    ]


def room_of(parts: list[str]) -> str:
    return parts[1].removesuffix(".py")


def climbing_imports(tree: Tree) -> list[str]:
    found = []
    for path, source in tree.items():
        if not path.startswith("actors/"):
            continue
        room = room_of(path.split("/"))
        for name in sorted(imports_of(source)):
            if name.startswith("outrider.actors."):
                below = room_of(name.split(".")[1:])
                if below != room and FLOORS.get(below, 9) >= FLOORS.get(room, 0):
                    found.append(f"{path} imports {name}")
    return found


def folders_in_circles(tree: Tree) -> set[str]:
    """Rooms of one part, by its top folder, that import each other, directly or not."""
    arrows: dict[str, set[str]] = {}
    for path, source in tree.items():
        part, room = path.split("/")[0], "/".join(path.split("/")[:2]).removesuffix(".py")
        for name in imports_of(source):
            below = name.split(".")[1:3]
            if name.startswith("outrider.") and len(below) == 2 and below[0] == part:
                arrows.setdefault(room, set()).add("/".join(below))
    reached = {room: seen - {room} for room, seen in arrows.items()}
    for _ in arrows:
        for seen in reached.values():
            seen |= set[str]().union(*(reached.get(room, set()) for room in seen))
    return {room for room, seen in reached.items() if room in seen}


def full_folders(tree: Tree) -> list[str]:
    sizes = Counter(path.rpartition("/")[0] for path in tree)
    return [folder for folder, size in sizes.items() if size > MOST_MODULES]


def shared_class_names(tree: Tree) -> set[str]:
    names = Counter(
        node.name
        for source in tree.values()
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return {name for name, count in names.items() if count > 1}


def test_each_library_has_its_home() -> None:
    assert misplaced_libraries(PRODUCT) == []
    for path, name in (("actors/engine/new.py", "ray"), ("cluster/api/new.py", "torch")):
        assert misplaced_libraries(PRODUCT | {path: f"import {name}"}) == [f"{path} imports {name}"]


def test_actors_import_lower_floors_only() -> None:
    assert climbing_imports(PRODUCT) == []
    planted = {"actors/text/new.py": "import outrider.actors.workers.target"}
    assert len(climbing_imports(PRODUCT | planted)) == 1
    attic = {"actors/attic/new.py": "import outrider.actors.errors"}
    assert len(climbing_imports(PRODUCT | attic)) == 1, "a new room needs a floor"


def test_no_folders_import_each_other() -> None:
    assert folders_in_circles(PRODUCT) == set()
    planted = {"kernels/contract/new.py": "import outrider.kernels.cpu.filter"}
    assert {"kernels/contract", "kernels/cpu"} <= folders_in_circles(PRODUCT | planted)


def test_no_folder_is_overfull() -> None:
    assert full_folders(PRODUCT) == []
    planted = {f"actors/text/new_{i}.py": "" for i in range(MOST_MODULES + 1)}
    assert full_folders(PRODUCT | planted) == ["actors/text"]


def test_a_public_class_name_means_one_thing() -> None:
    assert shared_class_names(PRODUCT) == set(SHARED_NAMES)
    planted = {"clients/new.py": "class Scheduler: ..."}
    assert "Scheduler" in shared_class_names(PRODUCT | planted)


PAGE = re.compile(r"\b[\w.-]+(?:/[\w.-]+)*\.md\b")
LINK = re.compile(r"\]\(([^)#:\s]+)[^):]*\)")  # of Markdown, to a file
ELSEWHERE = re.compile(r"\b[A-Z]{4,},? §")  # DESIGN §4


def dangling_citations(tree: Tree, paths: set[str]) -> list[str]:
    """Pages and files that are cited and not in the project: as from its top, or from the citer."""
    names, found = {path.rpartition("/")[2] for path in paths}, []
    folders = {str(parent) for path in paths for parent in Path(path).parents}
    for path, source in tree.items():
        links = LINK.findall(source) if path.endswith(".md") else []
        for page in links:
            at = (ROOT / path).parent.joinpath(page).resolve()
            if not at.is_relative_to(ROOT) or str(at.relative_to(ROOT)) not in paths | folders:
                found.append(f"{path} links to {page}")
        for page in PAGE.findall(source):
            if page.rpartition("/")[2] not in names:
                found.append(f"{path} cites {page}")
        found += [f"{path} cites {page}" for page in ELSEWHERE.findall(source)]
    return found


def unexplained_words(page: str) -> set[str]:
    return {word for word in (*Reason, *DraftStop) if f"`{word}`" not in page}


def test_what_is_cited_is_there() -> None:
    folders = [ROOT / folder for folder in (*FOLDERS, "k8s", "tests")]
    files = [*ROOT.glob("*"), *(path for folder in folders for path in folder.rglob("*"))]
    paths = {str(path.relative_to(ROOT)) for path in files if path.is_file()}
    endings = (".py", ".md", ".cu", ".cuh", ".yaml", ".toml")
    tree = {
        path: (ROOT / path).read_text()
        for path in paths
        if path.endswith(endings) and path != "tests/test_layout.py"
    }
    assert dangling_citations(tree, paths) == []
    planted = {
        "README.md": "See [the rules](RULES.md) and (DESIGN §4).",
        "kernels/new.py": "# papers.md 1.2",
    }
    assert len(dangling_citations(tree | planted, paths)) == 4


def test_every_reason_and_draft_stop_is_explained() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    assert unexplained_words(page) == set()
    assert unexplained_words(page.replace("`audit`", "")) == {"audit"}
    assert unexplained_words(page.replace("`vocabulary`", "")) == {"vocabulary"}
