"""`outrider train-head` for real: a few texts of the demo's target, a few steps, the same bytes."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from architectures import DEMO

from outrider.cluster.demo.asked_names import held_out_names, library_names, library_questions

COMMAND = [sys.executable, "-m", "outrider.cluster.cli", "train-head"]
SMALL = ["--texts", "40", "--steps", "6", "--rows", "4", "--threads", "1"]


def train(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [*COMMAND, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_killed_it_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("What does math.sqrt do?\n\nWhat is str.split?\n")
    asked = ["--prompts", str(prompts), *SMALL]
    whole = train(str(tmp_path / "whole"), *asked)
    assert whole.returncode == 0, whole.stderr
    assert f"--drafter eagle3:{tmp_path / 'whole' / 'head'}" in whole.stderr
    texts = (tmp_path / "whole" / "texts.jsonl").read_text()
    assert len(texts.splitlines()) == 40

    killed = tmp_path / "killed"
    with subprocess.Popen([*COMMAND, str(killed), *asked], stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 200
        while not (killed / "texts.jsonl").exists():  # the first of two lots
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    again = train(str(killed), *asked)
    assert again.returncode == 0, again.stderr
    assert (killed / "texts.jsonl").read_text() == texts
    for name in ("model.safetensors", "config.json", "README.md"):
        one, other = (folder / "head" / name for folder in (tmp_path / "whole", killed))
        assert one.read_bytes() == other.read_bytes(), name

    target = tmp_path / "target"
    shutil.copytree(DEMO / "target", target)
    with (target / "model.safetensors").open("ab") as file:
        file.write(b"\0")
    other = train(str(killed), "--target", str(target), *asked)
    assert other.returncode == 2
    assert "holds a training with target=demo" in other.stderr
    prompts.write_text("\n")
    empty = train(str(tmp_path / "new"), *asked)
    assert empty.returncode == 2
    assert "without a line, expected a prompt on each" in empty.stderr


def test_questions_about_the_library_leave_out_what_is_held_out() -> None:
    hidden, names = held_out_names(), library_names()
    assert len(hidden) > 100
    assert len(names) > 3000
    assert len(hidden & set(names)) > 10
    asked = library_questions(400, 1, hidden)
    assert len(asked) == 400
    assert asked != library_questions(400, 2, hidden)
    assert not [text for text in asked if any(f" {name} do?" in text for name in hidden)]
    assert json.dumps(asked) == json.dumps(library_questions(400, 1, hidden))
