"""The shape of a proposal, as it travels: `parents`, an index for each drafted token.

A token's parent is an earlier one; behind the committed text a token is its own parent. No parents
at all is a chain. A proposal of n tokens is judged by n + 1 rows of logits: the committed text's,
then one per token, which draws what follows it.
"""

from collections.abc import Sequence as Many

from outrider.actors.errors import ProtocolViolation


def check_parents(num_tokens: int, parents: Many[int]) -> None:
    """Raises ProtocolViolation unless these are the parents of so many tokens."""
    if parents and len(parents) != num_tokens:
        raise ProtocolViolation(
            f"Got {len(parents)} parents of {num_tokens} tokens, expected {num_tokens} or none"
        )
    for own, parent in enumerate(parents):
        if not 0 <= parent <= own:
            raise ProtocolViolation(f"Got parent {parent} of token {own}, expected 0 to {own}")


def parent_rows(num_tokens: int, parents: Many[int]) -> Many[int]:
    """The row that draws each token."""
    if not parents:
        return range(num_tokens)
    return [0 if parent == own else parent + 1 for own, parent in enumerate(parents)]


def path_to(node: int, parents: Many[int]) -> Many[int]:
    """The tokens from the committed text to this one; none for -1."""
    if not parents:
        return range(node + 1)
    path = []
    while node >= 0:
        path.append(node)
        node = -1 if parents[node] == node else parents[node]
    return path[::-1]


def leaf_paths(num_tokens: int, parents: Many[int]) -> list[tuple[Many[int], int]]:
    """The paths to all leaves, and of how many of its rows each one shares with those before."""
    if not parents:
        return [(range(num_tokens), 0)]
    inner = {parent for own, parent in enumerate(parents) if parent != own}
    seen, found = set[int](), list[tuple[Many[int], int]]()
    for leaf in range(num_tokens):
        if leaf not in inner:
            path = path_to(leaf, parents)
            num_seen = sum(node in seen for node in path)
            found.append((path, num_seen + 1 if found else 0))
            seen.update(path)
    return found
