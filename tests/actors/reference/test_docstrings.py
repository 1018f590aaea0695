"""The examples in docstrings run, and say what they say."""

import doctest

import pytest

from outrider.actors.reference import lossy, speculative_decoder, token_tree, tree_decoder


@pytest.mark.parametrize("module", [lossy, speculative_decoder, token_tree, tree_decoder])
def test_examples_run(module):
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0
