"""The Dockerfile and the models' job: linted, pinned, and about what is in the repository."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from cluster.k8s.manifests import KUBERNETES, ROOT, check_pod

from outrider.cluster.k8s.containers import COMPILED_FOLDER, USER
from outrider.cluster.k8s.installation import MODELS_FOLDER, Installation
from outrider.cluster.k8s.overlays import GPU_PAIR

DOCKERFILE = ROOT / "k8s" / "Dockerfile"
TEXT = DOCKERFILE.read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CLAIM = Installation.__dataclass_fields__["models_claim"].default


def lint(path: Path) -> list[str]:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert hadolint is not None, "it comes with the extra `test`"
    command = [hadolint, "--format", "json", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return [fault["code"] for fault in json.loads(result.stdout)]


def test_the_linter_finds_nothing(tmp_path: Path) -> None:
    assert lint(DOCKERFILE) == []
    worse = tmp_path / "Dockerfile"
    worse.write_text(TEXT.replace("wget=1.21*", "wget").replace("rm -rf", "ls"))
    assert {"DL3008", "DL3009"} <= set(lint(worse))


def test_everything_is_pinned_and_nobody_is_root() -> None:
    assert re.findall(r"^FROM (\S+)", TEXT, re.MULTILINE) == ["python:${PYTHON}"] * 2
    assert re.search(r"^ARG PYTHON=3\.\d+\.\d+-slim-\w+$", TEXT, re.MULTILINE)
    assert "pip install -c constraints.txt" in TEXT
    assert re.findall(r"^USER (.+)$", TEXT, re.MULTILINE) == [f"{USER}:{USER}"]
    assert TEXT.index("USER ") > TEXT.rindex("RUN ")


def test_what_is_copied_is_there_and_let_through() -> None:
    ignored = (ROOT / "k8s" / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    sources = [
        name
        for line in re.findall(r"^COPY (?!--from)(.+)$", TEXT, re.MULTILINE)
        for name in line.split()[:-1]
    ]
    assert {f"!{name}" for name in sources} == {line for line in ignored if line[0] == "!"}
    assert all((ROOT / name).exists() for name in sources)
    packages = {name.split(".")[1] for name in PROJECT["tool"]["setuptools"]["packages"]}
    assert packages <= set(sources)


def test_variants_are_extras() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    [pattern] = re.findall(r"^\s+(cuda\d+ \| cuda\d+)\)", TEXT, re.MULTILINE)
    assert {"server", *pattern.split(" | ")} <= extras.keys()
    assert {name for name in extras if name.startswith("cuda")} == set(pattern.split(" | "))


def test_it_holds_what_pods_ask_for() -> None:
    assert f"NUMBA_CACHE_DIR={COMPILED_FOLDER} " in TEXT
    assert COMPILED_FOLDER.startswith("/opt/outrider/")  # what the last stage takes over
    for program in ("bash", "wget"):
        assert re.search(rf"install .*\b{program}=", TEXT)


@pytest.mark.parametrize("kind", ["PersistentVolumeClaim", "Job"])
def test_the_models_job_is_valid(kind: str) -> None:
    objects = list(yaml.safe_load_all((ROOT / "k8s" / "models.yaml").read_text()))
    [found] = [each for each in objects if each["kind"] == kind]
    kubernetes_validate.validate(found, KUBERNETES, strict=True)
    if kind == "PersistentVolumeClaim":
        assert found["metadata"]["name"] == CLAIM
        return
    template = found["spec"]["template"]
    check_pod({"metadata": {"name": "fetch"}, "spec": template["spec"]})
    [container] = template["spec"]["containers"]
    assert container["image"] == Installation.__dataclass_fields__["image"].default
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert template["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == CLAIM
    script = container["command"][-1]
    for role in ("target", "draft"):
        folder, _, name = GPU_PAIR["model"][role].rpartition("/")
        assert folder == MODELS_FOLDER
        assert name in script
