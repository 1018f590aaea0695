"""`outrider demo`: what it refuses, in a line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from outrider.actors.demo import asking
from outrider.actors.demo.questions import questions
from outrider.cluster.cli import app

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
