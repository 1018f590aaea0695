"""A tree that grows over several forwards is the tree of one forward, and each path a plain text.

Bit for bit: the runners are exact.
"""

from collections.abc import Callable

import pytest
import torch

from outrider.actors.errors import IllegalTransition, InvalidRequest
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.runner import Runner

TEXT = [5, 9, 14, 3, 8]
# Two trunk nodes and three branches, grown by a level at a time.
LEVELS = [([21, 22], [-1, 0]), ([31, 32, 33], [-1, 0, 1]), ([41, 42, 43], [2, 3, 4])]
PATHS = {
    0: [0],
    1: [0, 1],
    2: [2],
    3: [0, 3],
    4: [0, 1, 4],
    5: [2, 5],
    6: [0, 3, 6],
    7: [0, 1, 4, 7],
}


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "gpt2"], indirect=True)
def test_levels_equal_plain_texts(make_runner: Callable[..., Runner], architecture: str) -> None:
    runner = make_runner(architecture)
    cache, parents, grown = runner.open(), [], []
    runner.forward([Segment(cache, TEXT, 0)])
    for tokens, more in LEVELS:
        parents += more
        chunk = Segment(cache, tokens, len(tokens), parents, root=len(TEXT))
        grown += list(runner.forward([chunk]))
    tokens = [token for level, _ in LEVELS for token in level]
    for node, path in PATHS.items():
        other = runner.open()
        wanted = runner.forward([Segment(other, [*TEXT, *(tokens[n] for n in path)])])[0]
        assert torch.equal(grown[node], wanted), node
        runner.close(other)
    runner.accept_path(cache, len(TEXT), [0, 3, 6])
    wanted_len = len(TEXT) + 3
    assert cache.len == wanted_len
    other = runner.open()
    text = [*TEXT, 21, 32, 42, 7]
    wanted = runner.forward([Segment(other, text)])
    assert torch.equal(runner.forward([Segment(cache, [7])]), wanted)


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "gpt2"], indirect=True)
def test_a_tree_may_begin_behind_new_tokens(
    make_runner: Callable[..., Runner], architecture: str
) -> None:
    """The last committed token has no KV yet when a proposal is judged; a long prompt has none."""
    runner = make_runner(architecture)
    tokens, parents = [21, 31, 22, 41], [-1, -1, 0, 1]
    for num_known in (0, 2, len(TEXT)):
        cache = runner.open()
        if num_known:
            runner.forward([Segment(cache, TEXT[:num_known], 0)])
        new = [*TEXT[num_known:], *tokens]
        judged = runner.forward([Segment(cache, new, 4, parents, root=len(TEXT))])
        for node, path in enumerate([[21], [31], [21, 22], [31, 41]]):
            other = runner.open()
            wanted = runner.forward([Segment(other, [*TEXT, *path])])[0]
            assert torch.equal(judged[node], wanted), (num_known, node)
            runner.close(other)
        runner.accept_path(cache, len(TEXT), [1, 3])
        other = runner.open()
        wanted = runner.forward([Segment(other, [*TEXT, 31, 41, 7])])
        assert torch.equal(runner.forward([Segment(cache, [7])]), wanted)
        runner.close(other)
        runner.close(cache)


def test_a_tree_beyond_the_context_by_rows_only_is_no_longer_text(
    make_runner: Callable[..., Runner],
) -> None:
    runner = make_runner(num_tokens=1024)
    cache = runner.open()
    text = [1 + i % 50 for i in range(runner.context_len - 2)]
    for at in range(0, len(text), 64):
        runner.forward([Segment(cache, text[at : at + 64], 0)])
    siblings = Segment(cache, [1, 2, 3, 4, 5, 6], 6, [-1] * 6, root=len(text))
    assert len(runner.forward([siblings])) == 6
    deep = Segment(cache, [7, 8, 9], 3, [-1] * 6 + [0, 6, 7], root=len(text))
    with pytest.raises(InvalidRequest, match="expected at most the model's context"):
        runner.forward([deep])


def test_bad_growth(make_runner: Callable[..., Runner]) -> None:
    cache = make_runner().open()
    with pytest.raises(IllegalTransition, match="Got 1 parents of 0 nodes"):
        Segment(cache, [1], 1, [-1], root=4)
