"""`outrider demo`: what it refuses, in a line, and what it tells of a pair."""

import re
from pathlib import Path

import architectures
import pytest
from typer.testing import CliRunner

from outrider.cluster.cli import app
from outrider.cluster.demo import asking, measuring
from outrider.cluster.demo.questions import questions

runner = CliRunner()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Got no documentation"),
        (["--docs", "/nowhere"], "Got documentation in /nowhere, expected the sources of Python"),
        (["--device", "tpu"], "Got device='tpu', accepted: auto, cpu, cuda"),
        (["--steps", "0"], "Got steps=0, expected at least 1"),
        (["--draft", "100x1"], "Got a model of 100x1, expected WIDTHxLAYERS"),
        (["--rows", "5"], "Got rows=5, expected an even number"),
    ],
)
def test_training_refuses(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    result = runner.invoke(app, ["demo", "train", str(tmp_path), *arguments])
    assert result.exit_code == 2
    assert said in result.stderr


def test_measuring_needs_a_trained_pair(tmp_path: Path) -> None:
    result = runner.invoke(app, ["demo", "measure", str(tmp_path)])
    assert result.exit_code == 2
    assert "without held_out.txt, expected a pair of `demo train`" in " ".join(
        result.stderr.split()
    )


def test_measuring_tells_cost_and_gain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = questions()[:2]
    monkeypatch.setattr("outrider.cluster.demo.questions.questions", lambda: asked)
    for name, number in (("ANSWER_LEN", 20), ("TIMED_LEN", 8), ("REPEATS", 1), ("NUM_FORWARDS", 2)):
        monkeypatch.setattr(measuring, name, number)
    for role in ("target", "draft"):
        (tmp_path / role).symlink_to(architectures.DEMO / role)
    (tmp_path / "held_out.txt").write_text("What does abacus.count do?\n")
    result = runner.invoke(app, ["demo", "measure", str(tmp_path)])
    assert result.exit_code == 0, result.stderr
    number = r"(\d\.\d\d)"
    gained = rf"(\d+) (\S+) questions: {number} greedy, {number} coupled at temperature 1"
    assert re.search(r"a draft step: \d+\.\d% of a target step", result.stdout)
    known, held_out = re.findall(gained, " ".join(result.stdout.split()))
    assert (known[:2], held_out[:2]) == (("2", "fixed"), ("1", "held-out"))
    assert all(1.0 <= float(each) <= 5.0 for each in (*known[2:], *held_out[2:]))
    assert float(known[2]) > 2.0, "what it knows by heart"


def test_answers_are_written_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "questions", lambda: questions()[:2])
    monkeypatch.setattr(asking, "ANSWER_LEN", 20)
    file = tmp_path / "answers.txt"
    result = runner.invoke(app, ["demo", "answers", "--output", str(file)])
    assert result.exit_code == 0, result.stderr
    text = file.read_text()
    assert "of 2 give the documented signature" in text
    assert " What does os.path.join do?" in text
    assert " What does os.path.exists do?" in text
