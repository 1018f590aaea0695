"""The pair, made once."""

from pathlib import Path

import pytest
from bench_pair import DEMO, TINY

from outrider.cluster.bench.synthetic.pair import build


@pytest.fixture(scope="session")
def bench_pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair")
    build(folder, TINY, DEMO / "target")
    return folder
