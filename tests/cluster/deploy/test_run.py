"""`outrider run` for real: a server for one conversation, which leaves nothing."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ASKED = "What does math.sqrt do?\nWhat does str.split do?\n"


def folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("outrider-ray-*"))


def test_a_conversation_from_a_pipe() -> None:
    before = folders()
    command = [sys.executable, "-m", "outrider.cluster.cli", "run", "--temperature", "0"]
    environment = {name: v for name, v in os.environ.items() if not name.startswith("OUTRIDER_")}
    done = subprocess.run(
        [*command, "--max-tokens", "60"],
        input=ASKED,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "square root" in done.stdout
    assert len(done.stdout.strip()) > 40
    assert "room for" in done.stderr
    assert "Traceback" not in done.stderr
    assert folders() == before
