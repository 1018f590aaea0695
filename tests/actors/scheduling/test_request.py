"""Where the tokens of a commit came from, by the tree that was judged."""

import pytest

from outrider.actors.scheduling.request import JudgedTree, OutputDelta

# Behind the text 5 and 6; behind 5 come 7 and 8, behind 7 comes 9.
TREE = JudgedTree((5, 6, 7, 8, 9), (0, 1, 0, 0, 2), ("draft", "ngram", "ngram", "draft", "draft"))
CHAIN = JudgedTree((5, 6, 7), (), ("draft", "draft", "ngram"))


@pytest.mark.parametrize(
    ("tree", "node", "num_tokens", "origins"),
    [
        (JudgedTree(), -1, 1, ("plain",)),
        (CHAIN, -1, 1, ("recovered",)),
        (CHAIN, 1, 3, ("draft", "draft", "recovered")),
        (CHAIN, 2, 4, ("draft", "draft", "ngram", "bonus")),
        (CHAIN, 2, 2, ("draft", "draft")),  # cut by a stop rule
        (TREE, -1, 1, ("recovered",)),
        (TREE, 1, 2, ("ngram", "bonus")),  # nothing was proposed behind it
        (TREE, 2, 3, ("draft", "ngram", "recovered")),
        (TREE, 3, 3, ("draft", "draft", "bonus")),
        (TREE, 4, 4, ("draft", "ngram", "draft", "bonus")),
        (TREE, 0, 0, ()),
    ],
)
def test_origins(tree: JudgedTree, node: int, num_tokens: int, origins: tuple[str, ...]) -> None:
    judged = JudgedTree(tree.token_ids, tree.parents, tree.drafters, node)
    chunk = OutputDelta((1,) * num_tokens, (0.0,) * num_tokens, "", tree=judged)
    assert chunk.origins == origins
    assert chunk.num_drafted == len(tree.token_ids)
    assert chunk.num_accepted == len(judged.accepted)
