"""The folder of a server: its own while it lives, removed by the next one if it was killed. And
Ray's start: with fewer processes, and never half of it.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from ray._private.node import Node

from outrider.cluster.deploy.local_ray import fewer_processes, own_folder, uninterrupted

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_end_of_rays_start(number: signal.Signals) -> None:
    said = list[str]()
    before = signal.signal(number, lambda number, frame: said.append("it came"))
    try:
        with uninterrupted():
            signal.raise_signal(number)
            said.append("Ray has started")
        assert said == ["Ray has started", "it came"]
        with uninterrupted():
            signal.raise_signal(number)
            signal.raise_signal(number)  # as of one who does not want to wait
            said.append("goes on")
        assert said[2:] == ["it came", "goes on", "it came"]
        signal.raise_signal(number)
        assert said[5:] == ["it came"]
    finally:
        signal.signal(number, before)


def test_what_is_none_of_ours_is_left_alone(place: Path) -> None:
    (place / "outrider-ray-of-somebody").mkdir()
    with own_folder():
        pass
    assert [each.name for each in place.iterdir()] == ["outrider-ray-of-somebody"]


@pytest.mark.parametrize("shows_logs", [False, True])
def test_ray_starts_what_it_is_asked_for_alone(shows_logs: bool) -> None:
    """Where a later Ray names its methods otherwise, this fails, and a start has more processes."""
    names = {"start_api_server", "start_monitor", "start_log_monitor"}
    before = {name: vars(Node)[name] for name in names}
    with fewer_processes(shows_logs):
        left_out = {name for name in names if vars(Node)[name] is not before[name]}
    assert left_out == names - ({"start_log_monitor"} if shows_logs else set())
    assert {name: vars(Node)[name] for name in names} == before
