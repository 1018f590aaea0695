"""The toy documentation, and the corpus made of it."""

from pathlib import Path

import pytest
from cluster.demo import toy_docs

from outrider.cluster.demo.corpus.corpus import Corpus, build


@pytest.fixture(scope="session")
def documentation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_docs.write(tmp_path_factory.mktemp("docs"))


@pytest.fixture(scope="session")
def corpus(documentation: Path) -> Corpus:
    """Without a standard library."""
    return build(documentation, documentation / "nothing")
