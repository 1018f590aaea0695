"""k8s/ is what the program writes, and kustomize builds from it what `render` prints."""

import json
import shutil
import subprocess

import pytest
import yaml
from cluster.k8s.manifests import ROOT, Object

from outrider.cluster.config.sources import build, from_file
from outrider.cluster.k8s.manifest import manifest
from outrider.cluster.k8s.overlays import OVERLAYS, files

FOLDER = ROOT / "k8s"
WRITTEN_BY_HAND = {"README.md", "Dockerfile", "Dockerfile.dockerignore", "models.yaml"}


def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    found = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    assert len(found) == len(objects)
    return found


def test_the_tree_is_current() -> None:
    for name, text in files().items():
        assert (FOLDER / name).read_text() == text, f"run the command in {name}'s first line"
    there = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.is_file()}
    assert there == files().keys() | WRITTEN_BY_HAND


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here")
@pytest.mark.parametrize("name", OVERLAYS)
def test_kustomize_builds_what_render_prints(name: str) -> None:
    command = ["kubectl", "kustomize", str(FOLDER / "overlays" / name)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    built = by_name([each for each in yaml.safe_load_all(result.stdout) if each])
    assert built == by_name(manifest(*OVERLAYS[name]))


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlays_file_is_a_configuration(name: str) -> None:
    """As `outrider check --config` and `outrider serve --config` read it."""
    config = build(from_file(FOLDER / "overlays" / name / "outrider.yaml"))
    assert config == OVERLAYS[name][0].config


def test_the_dashboard_is_a_file_of_its_own() -> None:
    dashboard = json.loads((FOLDER / "monitoring" / "outrider.json").read_text())
    assert dashboard["title"] == "Outrider"
