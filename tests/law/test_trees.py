"""Law 1 where proposals are trees: the text is that without speculation, whatever path is taken."""

import asyncio
from dataclasses import replace

import pytest
from batches import ARCHITECTURES, SAMPLINGS, alone, drained, known, output, requests, speculating
from known_trees import key, plant_trees
from pairwise import pairwise
from sampling_cases import PARAMETERS, batch_of, told

from outrider.actors.errors import OutriderError
from outrider.actors.runner.runner import Runner
from outrider.actors.scheduling.sampling_params import VerificationMode
from outrider.actors.workers import judging, target
from outrider.actors.workers.logits import logits_processor

AHEAD = {"pipeline": "ahead"}
CHAINS = {"pipeline": "lockstep", "lookahead": "fixed"}


async def check_trees(engine, monkeypatch, sizes=(1, 8), seed=0):
    """Batches of every size, some of their rows trees in each round."""
    vocab = engine.info.vocab_size
    for number, sampling in enumerate(SAMPLINGS):
        batch = requests(max(sizes), sampling, vocab, number)
        expected = await known(engine, batch)
        answers = {key(one): ids for one, (ids, _, _) in zip(batch, expected, strict=True)}
        with monkeypatch.context() as patch:
            num_planted = plant_trees(patch, answers, vocab, seed + number)
            before = engine.statistics.snapshot()
            for size in sizes:
                asked = [speculating(each, k=3) for each in batch[:size]]
                got = await asyncio.gather(*(output(engine, each) for each in asked))
                assert got == expected[:size], (sampling, size)
            after = engine.statistics.snapshot()
        assert num_planted[0] >= max(sizes)
        assert after.num_accepted - before.num_accepted > num_planted[0] // 2
    assert engine.health().status == "ok"


@pytest.mark.parametrize("architecture", ["demo", *ARCHITECTURES])
async def test_output_equals_plain_decoding(engine_of, monkeypatch, caplog, architecture):
    kind = "own" if architecture == "demo" else "good"
    async with engine_of(architecture, kind, has_draft=False, **CHAINS) as engine:
        await check_trees(engine, monkeypatch)
        await drained(engine)
    assert "a round of" not in caplog.text  # none failed and was asked again without proposals


@pytest.mark.parametrize(
    "config",
    [
        AHEAD,
        CHAINS,
        {"is_colocated": True, "drafters": ("ngram", "draft")},
        {"executor": "process", "has_prefix_cache": True, **AHEAD},
        {"token_budget": 24, "max_batch": 5, **AHEAD},
    ],
    ids=["ahead", "lockstep", "colocated", "processes", "chunked"],
)
async def test_beside_a_draft_that_knows_of_chains_only(engine_of, monkeypatch, config):
    async with engine_of("llama", "good", **config) as engine:
        await check_trees(engine, monkeypatch, seed=7)
        await drained(engine)


@pytest.mark.parametrize(("architecture", "kind"), [("demo", "own"), ("gemma2", "good")])
async def test_everything_a_request_can_ask(engine_of, monkeypatch, caplog, architecture, kind):
    """Penalties, grammars and log-probabilities along every path of a tree."""
    cases = pairwise(PARAMETERS)
    config = {"lookahead": "fixed", "token_budget": 48, "has_draft": False, "pipeline": "lockstep"}
    async with engine_of(architecture, kind, **config) as engine:
        plain, asked = batch_of(cases, 4000)
        expected = await known(engine, plain, told)
        answers = {key(one): it["ids"] for one, it in zip(plain, expected, strict=True)}
        num_planted = plant_trees(monkeypatch, answers, 4000)
        for size in (1, 8):
            got = []
            for at in range(0, len(cases), size):
                several = asked[at : at + size]
                got += await asyncio.gather(*(told(engine, request) for request, _ in several))
            for case, one, other in zip(cases, expected, got, strict=True):
                assert one == other, case
        assert num_planted[0] > len(cases)
        assert engine.statistics.snapshot().num_accepted > len(cases)
    assert "a round of" not in caplog.text


async def test_rejection_rows_are_chains_beside_trees(engine_of, monkeypatch, caplog):
    """Their distribution is test_rejection_statistics' matter; with trees beside them, judged by
    another kernel, they are still what they are alone.
    """
    async with engine_of("llama", "good", **CHAINS) as engine:
        batch = requests(8, {"temperature": 1.0}, 4096, seed=4)
        expected = await alone(engine, batch)
        answers = {key(one): ids for one, (ids, _, _) in zip(batch, expected, strict=True)}
        mode = VerificationMode.REJECTION
        drawn = [speculating(each, k=3, verification=mode) for each in batch[::2]]
        drawn = [replace(each, choice=each.choice + 5) for each in drawn]
        by_itself = [await output(engine, each) for each in drawn]
        with monkeypatch.context() as patch:
            assert plant_trees(patch, answers, 4096) == [0]
            several = [speculating(each, k=3) for each in batch] + drawn
            got = await asyncio.gather(*(output(engine, each) for each in several))
        assert got == expected + by_itself
    assert "a round of" not in caplog.text


def swaps_parents(monkeypatch):
    """The target packs another tree than it judges."""
    chunk = target._chunk

    def mutant(row, sequence):
        found = chunk(row, sequence)
        if found.parents is None:
            return found
        return replace(found, parents=[at - 1 for at in range(len(found.parents))])

    monkeypatch.setattr(target, "_chunk", mutant)


def judges_another_tree(monkeypatch):
    """Every token behind the one before it."""
    monkeypatch.setattr(
        judging, "_parents", lambda row: [max(0, at - 1) for at in range(len(row.tokens))]
    )


def keeps_the_first_rows(monkeypatch):
    """The path's KV is not moved to where it belongs."""
    accept_path = Runner.accept_path

    def mutant(self, cache, base, nodes):
        accept_path(self, cache, base, range(len(nodes)))

    monkeypatch.setattr(Runner, "accept_path", mutant)


def commits_the_first_tokens(monkeypatch):
    """The coordinator takes a tree for a chain."""
    from outrider.actors.spec_decode import proposer

    monkeypatch.setattr(proposer, "path_to", lambda node, parents: range(node + 1))


def tells_of_the_wrong_node(monkeypatch):
    """The worker's own ids are those of another path."""
    commit = target.TargetWorker._commit_all

    def mutant(self, rows, sequences, found):
        moved = [one._replace(path=[*range(len(one.path))]) for one in found]
        return commit(self, rows, sequences, moved)

    monkeypatch.setattr(target.TargetWorker, "_commit_all", mutant)


MUTANTS = [
    swaps_parents,
    judges_another_tree,
    keeps_the_first_rows,
    commits_the_first_tokens,
    tells_of_the_wrong_node,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
async def test_the_law_catches(engine_of, monkeypatch, mutant):
    async with engine_of("llama", "good", has_draft=False, **CHAINS) as engine:
        await check_trees(engine, monkeypatch, sizes=(4,))  # it is sound before
        mutant(monkeypatch)
        with pytest.raises((AssertionError, OutriderError)):
            await check_trees(engine, monkeypatch, sizes=(4,))


def edits_along_a_chain(monkeypatch):
    """Penalties of the tokens before, not of those that it follows."""
    monkeypatch.setattr(logits_processor, "parent_rows", lambda size, parents: range(size))


def masks_along_a_chain(monkeypatch):
    """Grammars too."""
    monkeypatch.setattr(logits_processor, "leaf_paths", lambda size, parents: [(range(size), 0)])


@pytest.mark.parametrize("mutant", [edits_along_a_chain, masks_along_a_chain])
async def test_the_law_catches_wrong_edits(engine_of, monkeypatch, caplog, mutant):
    mutant(monkeypatch)
    with pytest.raises((AssertionError, OutriderError)):
        await test_everything_a_request_can_ask(engine_of, monkeypatch, caplog, "demo", "own")
