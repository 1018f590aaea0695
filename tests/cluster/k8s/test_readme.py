"""The page's commands are ours, its overlays exist, and its claims name tests that there are."""

import re
import shlex
from pathlib import Path

import pytest
from cluster.k8s.manifests import ROOT
from typer.testing import CliRunner

from outrider.cluster.cli import app

TEXT = (ROOT / "k8s" / "README.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
runner = CliRunner()


def commands(program: str) -> list[list[str]]:
    """The words of every command line with this program, inside blocks and inside lines."""
    lines = [line for block in BLOCKS for line in re.sub(r"\\\n", " ", block).splitlines()]
    lines += re.findall(r"`([^`\n]+)`", TEXT)
    words = [
        shlex.split(line, comments=True) for line in lines if "…" not in line or program in line
    ]
    return [each for each in words if each[:1] == [program]]


def test_from_the_page_to_a_checked_manifest(tmp_path: Path) -> None:
    """The pair on two GPUs, as the page says it."""
    [render] = [each for each in commands("outrider") if each[1:3] == ["k8s", "render"] and ">" in
                each and "--monitoring" in each]  # fmt: skip
    at = render.index(">")
    result = runner.invoke(app, render[1:at])
    assert result.exit_code == 0, result.stderr
    file = tmp_path / render[at + 1]
    file.write_text(result.stdout)
    [check] = [each for each in commands("outrider") if each[1:3] == ["k8s", "check"]]
    assert check[-1] == file.name
    result = runner.invoke(app, [*check[1:-1], str(file)])
    assert result.exit_code == 0, result.stderr
    assert "1 to 5 pods, each with 3 CPU, 2 GPU" in result.stderr


def test_the_demo_takes_five_commands() -> None:
    [block] = [each for each in BLOCKS if "overlays/cpu-demo" in each]
    lines = block.strip().splitlines()
    assert len(lines) == 5
    for path in re.findall(r"-k (\S+)", block):
        if not path.startswith("'"):
            assert (ROOT / path / "kustomization.yaml").is_file()


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`(tests/\S+?)`", TEXT))))
def test_claims_name_tests(named: str) -> None:
    path, _, function = named.partition("::")
    assert f"def {function}(" in (ROOT / path).read_text() if function else (ROOT / path).is_file()


def test_keys_are_real() -> None:
    from outrider.cluster.config.sources import fields

    known = fields()
    named = set(re.findall(r"\b(?:cluster|engine|http|model)\.[a-z_]+\b", TEXT))
    named -= {"cluster.leave"}  # a module
    assert len(named) > 5
    assert named <= known.keys()


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        if not target.startswith("https://"):
            assert (ROOT / "k8s" / target).resolve().exists(), target
