"""A worker that is started again does not read its checkpoint twice."""

import shutil
from dataclasses import replace

import architectures
import pytest

from outrider.actors.transport.worker_spec import WorkerSpec
from outrider.actors.workers import loading


@pytest.fixture
def spec(tmp_path):
    folder = tmp_path / "draft"
    shutil.copytree(architectures.DEMO / "draft", folder)
    return WorkerSpec("draft", str(folder), num_target_ids=4096, num_tokens=256)


def test_files_that_have_not_changed_are_not_read_again(spec, monkeypatch):
    first = loading.load_worker(spec).description
    again = replace(spec, known_files=first.files, known_digest=first.digest)
    with monkeypatch.context() as patch:
        patch.setattr(loading, "_digest", lambda path: pytest.fail("it was read"))
        assert loading.load_worker(again).description.fingerprint == first.fingerprint
    config = loading.Path(spec.model) / "config.json"
    config.write_text(config.read_text() + " ")
    changed = loading.load_worker(again).description
    assert changed.files != first.files
    assert changed.fingerprint != first.fingerprint
