"""The folder of a server: its own while it lives, removed by the next one if it was killed."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from outrider.cluster.deploy.local_ray import own_folder

HOLD = """
import sys
from outrider.cluster.deploy.local_ray import own_folder
with own_folder() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def holder() -> tuple["subprocess.Popen[str]", Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_it_is_ours_alone_and_goes_with_us(place: Path) -> None:
    with own_folder() as folder:
        assert folder.parent == place
        assert folder.stat().st_mode & 0o777 == 0o700
        assert list(place.iterdir()) == [folder]
    assert list(place.iterdir()) == []


def test_that_of_a_killed_server_is_removed_and_of_a_living_one_is_not(place: Path) -> None:
    living, kept = holder()
    killed, left = holder()
    (left / "session").mkdir()
    killed.kill()
    killed.communicate()
    with own_folder() as ours:
        assert set(place.iterdir()) == {ours, kept}
        assert os.listdir(kept) == ["lock"]
    living.communicate("")
    assert living.returncode == 0
    assert list(place.iterdir()) == []


def test_what_is_none_of_ours_is_left_alone(place: Path) -> None:
    (place / "outrider-ray-of-somebody").mkdir()
    with own_folder():
        pass
    assert [each.name for each in place.iterdir()] == ["outrider-ray-of-somebody"]
