"""`outrider run` for real: a server for one conversation, which leaves nothing. Its models are
names, found in the hub's cache without a network.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from outrider.cluster.config.demo_models import demo_draft, demo_target

ASKED = "What does math.sqrt do?\nWhat does str.split do?\n"


def folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("outrider-ray-*"))


def keep(model: Path, name: str, home: Path) -> None:
    """In the cache, as the hub's client leaves it."""
    folder = home / "hub" / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("0123456789abcdef")
    shutil.copytree(model, folder / "snapshots" / "0123456789abcdef")


def test_a_conversation_from_a_pipe(tmp_path: Path) -> None:
    before = folders()
    keep(demo_target(), "outrider/demo", tmp_path)
    keep(demo_draft(), "outrider/demo-draft", tmp_path)
    command = [sys.executable, "-m", "outrider.cluster.cli", "run", "outrider/demo"]
    environment = {name: v for name, v in os.environ.items() if not name.startswith("OUTRIDER_")}
    environment |= {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*command, "--draft", "outrider/demo-draft", "--temperature", "0", "--max-tokens", "60"],
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
    assert not folders() - before  # what a killed server had left may be gone too
