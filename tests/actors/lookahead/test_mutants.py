"""The promises can be broken: each planted error breaks the one that is there for it."""

import pytest
from actors.lookahead.mutants import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_mutant_is_caught(mutant, monkeypatch):
    monkeypatch.setattr(mutant.where, mutant.attribute, mutant.value)
    with pytest.raises(AssertionError):
        mutant.caught_by()
