"""Models by name, from a hub on loopback: what is fetched, what is refused, what is resumed.

The hub's client reads its environment as it is imported, so each case is a process of its own.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster.models.hub_server import SHA, TOKEN, Hub, Repository, hub_server

from outrider.cluster.config.demo_models import demo_draft, demo_head
from outrider.cluster.config.hub_name import HubName, hub_name, of_snapshot
from outrider.cluster.models import download_lines

NAME = "acme/tiny"
FETCH = """
import sys
from pathlib import Path
from outrider.actors.errors import OutriderError
from outrider.cluster.models.local_models import local_head, local_model
try:
    if sys.argv[2] == "head":
        print(local_head(sys.argv[1], lambda line: print(line, file=sys.stderr)))
    else:
        print(local_model("target", Path(sys.argv[1]), lambda line: print(line, file=sys.stderr)))
except OutriderError as error:
    print(f"{type(error).__name__}: {error}")
"""
HEAD_FILES = ("config.json", "model.safetensors")
EXTRA = ("consolidated.safetensors", "original/params.safetensors", "pytorch_model.bin", "x.py")


@pytest.fixture
def hub() -> Iterator[Hub]:
    with hub_server() as served:
        files = {path.name: path.read_bytes() for path in demo_draft().iterdir()}
        served.repositories[NAME] = Repository(files | {name: b"no" for name in EXTRA})
        yield served


Fetch = Callable[..., tuple[str, str]]


@pytest.fixture
def fetch(hub: Hub, tmp_path: Path) -> Fetch:
    """(what was printed, progress) of fetching a name with these variables set."""

    def run(name: str = NAME, what: str = "model", **environment: str) -> tuple[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
        own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
        done = subprocess.run(
            [sys.executable, "-c", FETCH, name, what],
            env=kept | own | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return done.stdout.strip(), done.stderr

    return run


def test_what_a_model_needs_is_fetched_and_nothing_else(hub: Hub, fetch: Fetch) -> None:
    folder, said = fetch()
    assert Path(folder).name == SHA
    names = {path.name for path in Path(folder).iterdir()}
    assert names == {path.name for path in demo_draft().iterdir()} - {"README.md"}
    for name in names:
        assert (Path(folder) / name).read_bytes() == (demo_draft() / name).read_bytes()
    assert not set(EXTRA) & set(hub.fetched())
    assert "downloading the target acme/tiny" in said
    hub.requests.clear()
    assert fetch()[0] == folder
    assert hub.fetched() == []  # all of it is in the cache


def test_a_filled_cache_serves_without_a_network(hub: Hub, fetch: Fetch) -> None:
    folder, _ = fetch()
    assert fetch(HF_HUB_OFFLINE="1")[0] == folder
    assert fetch(HF_ENDPOINT="http://127.0.0.1:9")[0] == folder
    assert fetch(f"{NAME}@{SHA}", HF_HUB_OFFLINE="1")[0] == folder


def test_what_the_index_names_is_fetched(hub: Hub, fetch: Fetch) -> None:
    files = hub.repositories[NAME].files
    data = files.pop("model.safetensors")
    shards = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    index = {"weight_map": {"a": shards[0], "b": shards[1]}}
    files |= {shards[0]: data, shards[1]: data, "other.safetensors": data}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    folder, _ = fetch()
    found = {path.name for path in Path(folder).glob("*.safetensors")}
    assert found == set(shards)
    del files[shards[1]]
    (Path(folder) / shards[1]).unlink()
    hub.repositories["acme/other"] = hub.repositories[NAME]
    said, _ = fetch("acme/other")
    assert said.startswith(f"ModelRefused: Got acme/other without {shards[1]}, expected a model")


def test_a_heads_config_and_weights_are_fetched(hub: Hub, fetch: Fetch) -> None:
    files = {name: (demo_head("eagle3") / name).read_bytes() for name in HEAD_FILES}
    hub.repositories["acme/head"] = Repository(files | {"pytorch_model.bin": b"no"})
    folder, said = fetch("acme/head", "head")
    assert {path.name for path in Path(folder).iterdir()} == set(HEAD_FILES)
    assert "the head acme/head" in said
    hub.repositories["acme/pickled"] = Repository({"pytorch_model.bin": b"no"})
    assert "without *.safetensors" in fetch("acme/pickled", "head")[0]
    assert "acme/none" in fetch("acme/none", "head")[0]


def test_a_name_that_is_not_there(fetch: Fetch) -> None:
    said, _ = fetch("acme/none")
    assert said.startswith("ModelRefused: Got target=acme/none, expected a directory or a model of")
    assert "HF_TOKEN" in said


def test_a_revision_that_is_not_there(fetch: Fetch) -> None:
    said, _ = fetch(f"{NAME}@v9")
    assert said.startswith(f"ModelRefused: Got target={NAME}@v9: {NAME} has no revision v9")


def test_a_gated_model_says_what_to_do(hub: Hub, fetch: Fetch) -> None:
    hub.repositories[NAME].is_gated = True
    said, _ = fetch()
    assert said.startswith(f"ModelRefused: Got target={NAME}, which is gated: accept its terms at")
    assert f"{hub.url}/{NAME}" in said
    assert Path(fetch(HF_TOKEN=TOKEN)[0]).name == SHA


def test_without_a_network_the_cache_is_told(hub: Hub, fetch: Fetch) -> None:
    fetch()
    for environment in ({"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}):
        said, _ = fetch("acme/none", **environment)
        assert said.startswith("ModelRefused: Got target=acme/none, of which not all is in the")
        assert said.endswith(f"In the cache: {NAME}")


def test_pickled_weights_are_named_and_not_fetched(hub: Hub, fetch: Fetch) -> None:
    del hub.repositories[NAME].files["model.safetensors"]
    said, _ = fetch()
    assert said.startswith(f"ModelRefused: Got {NAME} without model.safetensors, expected a model")
    assert "pytorch_model.bin, which are not read" in said
    assert "pytorch_model.bin" not in hub.fetched()


def test_a_disk_too_small_is_told_first(hub: Hub, fetch: Fetch) -> None:
    hub.repositories[NAME].sizes["model.safetensors"] = 1 << 60
    said, _ = fetch()
    assert said.startswith(f"ModelRefused: {NAME} takes 1152921504.61 GB more, ")
    assert "HF_HOME" in said
    assert "model.safetensors" not in hub.fetched()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"quantization_config": {"quant_method": "awq"}}, "which is quantised (awq)"),
        ({"vision_config": {"depth": 1}}, "a multimodal model (vision_config)"),
        ({"layer_types": ["linear_attention"]}, "not attention alone (linear_attention)"),
    ],
)
def test_a_config_is_refused_before_weights(
    hub: Hub, fetch: Fetch, change: dict[str, object], words: str
) -> None:
    files = hub.repositories[NAME].files
    files["config.json"] = json.dumps(json.loads(files["config.json"]) | change).encode()
    said, _ = fetch()
    assert words in said
    assert "model.safetensors" not in hub.fetched()


def test_a_broken_connection_is_resumed(hub: Hub, fetch: Fetch) -> None:
    repository = hub.repositories[NAME]
    repository.files["model.safetensors"] = data = bytes(range(256)) * 80_000
    repository.cut_after = 11 << 20
    folder, _ = fetch()
    assert (Path(folder) / "model.safetensors").read_bytes() == data
    weights = [range_ for method, path, range_ in hub.requests
               if path.endswith("/model.safetensors") and method == "GET"]  # fmt: skip
    assert len(weights) == 2
    assert weights[0] is None
    assert int(str(weights[1]).removeprefix("bytes=").split("-")[0]) > 1 << 20


def test_what_was_fetched_is_kept_by_one_that_failed(hub: Hub, fetch: Fetch) -> None:
    files = hub.repositories[NAME].files
    shards = ("a.safetensors", "b.safetensors")
    files["a.safetensors"] = files.pop("model.safetensors")
    files["b.safetensors"] = files["a.safetensors"][::-1]
    index = {"weight_map": dict(zip("xy", shards, strict=True))}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    hub.repositories[NAME].withheld = ("b.safetensors",)
    said, _ = fetch()
    assert said.startswith(f"ModelRefused: Got target={NAME}, of which not all is in the cache")
    hub.repositories[NAME].withheld = ()
    hub.requests.clear()
    folder, _ = fetch()
    assert [name for name in hub.fetched() if name in shards] == ["b.safetensors"]
    for name in shards:
        assert (Path(folder) / name).read_bytes() == files[name]


def test_a_path_that_exists_is_a_directory(
    fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme" / "tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    said, _ = fetch()
    assert said.startswith(f"ModelRefused: Got the target {NAME} without a readable config.json")


def test_a_name_is_as_good_as_a_folder(hub: Hub, fetch: Fetch, tmp_path: Path) -> None:
    fetch()
    command = ["generate", "x = ", "--target", NAME, "--draft", "none", "--max-tokens", "4"]
    own = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    texts = [
        subprocess.run(
            [sys.executable, "-m", "outrider.cluster.cli", *command, "--temperature", "0", *more],
            env=os.environ | own,
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        ).stdout
        for more in ([], ["--target", str(demo_draft())])
    ]
    assert texts[0] == texts[1]


def test_a_log_has_lines_instead_of_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_lines, "EVERY_S", 0)
    said: list[str] = []
    with download_lines.lines_of(said.append)(desc="Reconstructing", total=4_000_000_000) as bar:
        bar.update(1_500_000_000)
    with download_lines.lines_of(said.append)(desc="Fetching 3 files", total=3) as bar:
        bar.update(1)
    assert said == ["downloaded 1.50 of 4.00 GB"]


@pytest.mark.parametrize("text", ["org/name", "org/na.me-1@v1.0", "o/n@refs/pr/2"])
def test_names(text: str) -> None:
    name = hub_name(text)
    assert name is not None
    assert str(name) == text


@pytest.mark.parametrize("text", ["name", "/org/name", "./org/name", "a/b/c", "org/", "org/n@", ""])
def test_no_names(text: str) -> None:
    assert hub_name(text) is None


def test_a_folder_of_the_cache_tells_its_name() -> None:
    """A worker on another machine fetches what its coordinator has."""
    folder = Path(f"/home/me/.cache/huggingface/hub/models--acme--a--b/snapshots/{SHA}")
    assert of_snapshot(folder) == HubName("acme/a--b", SHA)
    assert of_snapshot(demo_draft()) is None
