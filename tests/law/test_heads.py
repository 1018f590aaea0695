"""Law 1 with every kind of head: right, wrong or broken, the text is that of the target alone."""

import asyncio
import os
import signal

import architectures
import msgspec
import pytest
import toy_heads
from batches import SAMPLINGS, alone, check, drained, known, output, requests, speculating
from toy_heads import after, cycling_target, random_head, save_head

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.errors import InvalidConfig, OutriderError
from outrider.actors.executor.executor import InlineExecutor, ProcessExecutor
from outrider.actors.heads import early_exit
from outrider.actors.heads.early_exit import EarlyExitRunner
from outrider.actors.heads.head_runner import EagleRunner, HeadRunner
from outrider.actors.lookahead import price_controller
from outrider.actors.lookahead.price import Price
from outrider.actors.lookahead.round_report import MAX_NODES
from outrider.actors.scheduling import scheduler
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import Grammar, GrammarKind, SamplingParams
from outrider.actors.spec_decode.drafters.registry import USUAL_DRAFTERS
from outrider.actors.transport.draft_stop import DraftStop
from outrider.actors.trees import choosing
from outrider.actors.workers import target as target_worker
from outrider.actors.workers.ahead.lockstep_growth import LockstepGrowth

KINDS = ("medusa", "eagle", "eagle3")
IN_TARGET = {"is_colocated": "auto", "has_draft": False, "min_head_score": 0.0}
VOCAB = 4096  # the tokenizer's
WIDTHS = {"demo": 128, "llama": 64, "gemma2": 64, "gpt2": 64}


@pytest.fixture(scope="session")
def right(tmp_path_factory):
    """The target that turns round, and each kind's right head for it."""
    root, model = tmp_path_factory.mktemp("right"), cycling_target(VOCAB)
    tensors = {
        "medusa": toy_heads.medusa_tensors(model),
        "eagle": toy_heads.eagle_tensors(),
        "eagle3": toy_heads.eagle3_tensors(model),
    }
    heads = {
        kind: f"{kind}:{save_head(root / kind, toy_heads.CONFIG, tensors[kind])}" for kind in KINDS
    }
    return architectures.save(model, root / "target"), heads | {"early_exit": "early_exit:1"}


@pytest.fixture(scope="session")
def wrong(tmp_path_factory):
    """(architecture, kind, fill) → a head of random numbers for it, as the operator names it."""
    root = tmp_path_factory.mktemp("wrong")

    def written(architecture, kind, fill=None):
        if kind == "early_exit":
            return "early_exit:1"
        folder = root / f"{architecture}-{kind}-{fill}"
        return f"{kind}:{random_head(kind, WIDTHS[architecture], VOCAB, folder, fill)}"

    return written


async def started(target, drafters, executor=None, **options):
    fixed = {"kv_tokens": 4096, "numerics": "exact", "num_threads": 1, "min_head_score": 0.0}
    chosen = EngineOptions(drafters=drafters, **fixed | options)
    return await Engine.start(EngineConfig(target, None, chosen), executor or InlineExecutor())


@pytest.mark.parametrize("kind", [*KINDS, "early_exit"])
@pytest.mark.parametrize("architecture", list(WIDTHS))
async def test_output_equals_plain_decoding(engine_of, wrong, architecture, kind):
    drafters = (wrong(architecture, kind),)
    async with engine_of(architecture, "random", drafters=drafters, **IN_TARGET) as engine:
        await check(engine, sizes=(1, 8), ks=(None, 1, 3), oracle=known)
        assert engine.statistics.snapshot().num_drafted > 100
        assert engine.info.drafters == (kind,)
        await drained(engine)


@pytest.mark.parametrize("kind", [*KINDS, "early_exit"])
async def test_beside_all_others_in_chunks_with_shared_pages(engine_of, wrong, kind, monkeypatch):
    monkeypatch.setattr(price_controller, "DOUBTFUL", 0.0)  # what is wrong might rest
    config = {"token_budget": 24, "has_prefix_cache": True, "max_batch": 5, "kv_tokens": 640}
    drafters = (*USUAL_DRAFTERS, wrong("demo", kind))
    async with engine_of("demo", "own", drafters=drafters, **IN_TARGET | config) as engine:
        for number, sampling in enumerate(({"temperature": 0.0}, {"temperature": 1.0})):
            batch = requests(8, sampling, VOCAB, seed=number)
            expected = await alone(engine, batch)
            for _ in range(2):  # the second time prompts are there already
                asked = [speculating(each) for each in batch]
                assert await asyncio.gather(*(output(engine, each) for each in asked)) == expected
        told = engine.statistics.snapshot().events
        assert told["nodes_judged", kind] > 20
        await drained(engine)


@pytest.mark.parametrize("kind", [*KINDS, "early_exit"])
async def test_where_pages_are_short(right, kind):
    """Who must leave for others goes on later, with the head that it had."""
    target, heads = right
    config = {"kv_tokens": 256, "has_prefix_cache": True, "max_batch": 4}
    engine = await started(target, (heads[kind],), **config)
    sampling = SamplingParams(1.0, max_tokens=100, ignores_eos=True)
    batch = [Request((*range(300, 300 + 9 * n), 5), sampling, seed=n) for n in range(6)]
    expected = await alone(engine, batch)
    asked = [speculating(each, k=4) for each in batch]
    assert await asyncio.gather(*(output(engine, each) for each in asked)) == expected
    told = engine.statistics.snapshot()
    assert told.num_preempted > 0
    assert told.events["nodes_accepted", kind] > 100
    await drained(engine)
    await engine.stop()


@pytest.mark.parametrize("kind", [*KINDS, "early_exit"])
async def test_edited_and_constrained(engine_of, wrong, kind):
    grammar = Grammar(GrammarKind.REGEX, "[a-z ]{10,40}")
    edited = [
        {"temperature": 1.0, "repetition_penalty": 1.3, "frequency_penalty": 0.5},
        {"temperature": 0.0, "presence_penalty": 1.5, "logit_bias": ((77, 5.0), (400, -50.0))},
        {"temperature": 0.7, "min_tokens": 6},
    ]
    async with engine_of("demo", "own", drafters=(wrong("demo", kind),), **IN_TARGET) as engine:
        for sampling in edited:
            batch = requests(4, sampling, VOCAB, seed=3)
            expected = await alone(engine, batch)
            assert await asyncio.gather(*(output(engine, each) for each in batch)) == expected
        for temperature in (0.0, 1.0):
            sampling = SamplingParams(temperature, max_tokens=40, grammar=grammar)
            asked = [Request((5 + n, 60, 7), sampling, seed=n) for n in range(4)]
            texts = [
                [
                    "".join([c.text async for c in engine.generate(speculating(each, **how))])
                    for each in asked
                ]
                for how in ({"is_enabled": False}, {})
            ]
            assert texts[0] == texts[1]


@pytest.mark.parametrize("kind", [*KINDS, "early_exit"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_a_right_head_is_always_accepted(right, kind, temperature):
    target, heads = right
    engine = await started(target, (heads[kind],), min_head_score=0.99)
    sampling = SamplingParams(temperature, max_tokens=60, ignores_eos=True)
    asked = [Request((5 + at, after(5 + at)), sampling, seed=at) for at in range(4)]
    expected = await alone(engine, asked)
    assert await asyncio.gather(*(output(engine, speculating(e, k=4)) for e in asked)) == expected
    assert await asyncio.gather(*(output(engine, each) for each in asked)) == expected
    told = engine.statistics.snapshot()
    assert told.num_drafted > 150
    assert told.acceptance_rate == 1.0
    await drained(engine)
    await engine.stop()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_head_without_a_number_drafts_nothing(engine_of, wrong, kind):
    drafters = (wrong("llama", kind, float("nan")),)
    async with engine_of("llama", "random", drafters=drafters, **IN_TARGET) as engine:
        batch = requests(4, {"temperature": 1.0}, VOCAB, seed=2)
        assert await asyncio.gather(*(output(engine, e) for e in batch)) == await alone(
            engine, batch
        )
        assert engine.statistics.snapshot().num_drafted == 0
        assert engine.health().status == "ok"


async def test_a_failing_head_costs_speed_only(right, monkeypatch):
    target, heads = right
    engine = await started(target, (heads["eagle3"],))
    batch = requests(4, {"temperature": 1.0}, VOCAB, seed=2)
    expected = await alone(engine, batch)

    def fail(self, chunks):
        raise ArithmeticError("no step of it succeeds")

    with monkeypatch.context() as patch:
        patch.setattr(EagleRunner, "forward", fail)
        assert await asyncio.gather(*(output(engine, each) for each in batch)) == expected
    assert await asyncio.gather(*(output(engine, each) for each in batch)) == expected
    await drained(engine)
    await engine.stop()


class Recording(ProcessExecutor):
    """It keeps what its workers were built from."""

    def __init__(self):
        super().__init__()
        self.specs = []

    async def start(self, spec):
        self.specs.append(spec)
        return await super().start(spec)


@pytest.mark.usefixtures("imported_once")
@pytest.mark.parametrize("kind", [*KINDS, "early_exit"])
async def test_a_dead_worker_takes_nothing_with_it(right, kind):
    target, heads = right
    executor = Recording()
    engine = await started(target, (heads[kind],), executor)
    batch = requests(6, {"temperature": 1.0}, VOCAB, seed=4)
    batch = [
        Request(r.prompt_ids, SamplingParams(1.0, max_tokens=200, ignores_eos=True), r.seed)
        for r in batch
    ]
    expected = await alone(engine, batch)
    running = [asyncio.create_task(output(engine, each)) for each in batch]
    await asyncio.sleep(0.05)
    os.kill(engine.health().workers[0].pid, signal.SIGKILL)
    assert await asyncio.gather(*running) == expected
    assert engine.health().workers[0].num_deaths == 1
    assert [worker.role for worker in engine.health().workers] == ["target", "draft"]
    assert executor.specs[-1].known_head_scores == engine.info.head_scores  # not tried again
    before = engine.statistics.snapshot()
    assert await asyncio.gather(*(output(engine, each) for each in batch)) == expected
    after_it = engine.statistics.snapshot()
    assert after_it.num_accepted - before.num_accepted > 200
    await drained(engine)
    await engine.stop()


@pytest.mark.parametrize("kind", [*KINDS, "early_exit"])
async def test_trees_as_large_as_they_may_be(engine_of, wrong, kind, monkeypatch):
    """Every node is fed, and every one judged, of whatever chance."""
    grow_from = LockstepGrowth._grow_from

    def whatever_it_is_worth(self, row):
        grow_from(self, msgspec.structs.replace(row, min_chance=0.0))

    monkeypatch.setattr(LockstepGrowth, "_cost", 0.0)
    monkeypatch.setattr(LockstepGrowth, "_grow_from", whatever_it_is_worth)
    monkeypatch.setattr(LockstepGrowth, "_num_worth", lambda self, found, num_chosen: len(found))
    monkeypatch.setattr(scheduler, "MAX_ROW_NODES", MAX_NODES)
    monkeypatch.setattr(choosing, "FLOOR", 0.0)
    monkeypatch.setattr(Price, "room", lambda self, num_tokens: None)
    monkeypatch.setattr(Price, "least", lambda self, num_tokens: 0.0)
    monkeypatch.setattr(Price, "worth", lambda self, chances, num_tokens: (len(chances), 1.0))
    chunk, sizes = target_worker._chunk, []
    monkeypatch.setattr(
        target_worker,
        "_chunk",
        lambda row, *rest: sizes.append(len(row.tokens)) or chunk(row, *rest),
    )
    config = {"kv_tokens": 8192, "token_budget": 2048}
    drafters = (wrong("demo", kind),)
    async with engine_of("demo", "own", drafters=drafters, **IN_TARGET | config) as engine:
        batch = [requests(2, each, VOCAB, seed=5) for each in SAMPLINGS[:2]]
        for asked in batch:
            expected = await alone(engine, asked)
            sizes.clear()
            got = await asyncio.gather(*(output(engine, speculating(e)) for e in asked))
            assert got == expected
            assert max(sizes) == MAX_NODES
        await drained(engine)


@pytest.mark.parametrize("kind", [*KINDS, "early_exit"])
async def test_news_of_an_earlier_round(engine_of, wrong, kind, monkeypatch):
    """Every sixth round the head hears where its sequences stood in another."""
    begin, rounds = LockstepGrowth.begin, []

    def late(self, message):
        rounds.append(message)
        if len(rounds) % 6 == 0:
            stood = {turn.grow.seq_id: turn.grow for turn in rounds[-2].turns}
            turns = tuple(
                msgspec.structs.replace(turn, grow=stood.get(turn.grow.seq_id, turn.grow))
                for turn in message.turns
            )
            message = msgspec.structs.replace(message, turns=turns)
        begin(self, message)

    monkeypatch.setattr(LockstepGrowth, "begin", late)
    async with engine_of("demo", "own", drafters=(wrong("demo", kind),), **IN_TARGET) as engine:
        for number, sampling in enumerate(SAMPLINGS):
            batch = requests(4, sampling, VOCAB, seed=number)
            expected = await alone(engine, batch)
            got = await asyncio.gather(*(output(engine, speculating(e, k=3)) for e in batch))
            assert got == expected
        told = engine.statistics.snapshot()
        assert told.events["draft_stopped", DraftStop.FAILED] > 0
        assert told.num_drafted > 20
        await drained(engine)


async def test_an_early_exit_computes_no_prompt(right, monkeypatch):
    """Keys and values of its layers are the target's own."""
    forward, sizes = early_exit.forward, []

    def told(model, pool, chunks, **how):
        sizes.append(sum(len(chunk.tokens) for chunk in chunks))
        return forward(model, pool, chunks, **how)

    target, heads = right
    engine = await started(target, (heads["early_exit"],), token_budget=64)
    monkeypatch.setattr(early_exit, "forward", told)
    sampling = SamplingParams(0.0, max_tokens=20, ignores_eos=True)
    asked = Request((*range(400, 700), 5, after(5)), sampling, seed=1)
    assert await output(engine, speculating(asked, k=4)) == (await alone(engine, [asked]))[0]
    assert 10 < sum(sizes) < 60
    assert engine.statistics.snapshot().acceptance_rate == 1.0
    await engine.stop()


async def test_guesses_that_are_not_given_back_are_seen(right, monkeypatch):
    """A mutant: the target goes on behind rows of guesses."""
    target, heads = right
    monkeypatch.setattr(EarlyExitRunner, "give_back", lambda self: self._lent.clear())
    engine = await started(target, (heads["early_exit"],))
    sampling = SamplingParams(1.0, max_tokens=20, ignores_eos=True)
    asked = speculating(Request((400, 401, 5, after(5)), sampling, seed=1), k=4)
    try:
        text = await output(engine, asked)
    except OutriderError:
        text = None
    assert text != (await alone(engine, [asked]))[0]
    await engine.stop()


async def test_a_request_may_leave_it_out(right):
    target, heads = right
    engine = await started(target, ("ngram", heads["eagle3"]))
    [request] = requests(1, {"temperature": 0.0}, VOCAB, seed=1)
    asked = speculating(request, drafters=("ngram",))
    told = [chunk async for chunk in engine.generate(asked)]
    assert {name for chunk in told for name in chunk.tree.drafters} <= {"ngram"}
    told = [c async for c in engine.generate(speculating(request, drafters=("eagle3",)))]
    assert {name for chunk in told for name in chunk.tree.drafters} == {"eagle3"}
    await engine.stop()


@pytest.mark.parametrize(
    ("drafters", "options", "message"),
    [
        (("eagle3",), {}, "expected eagle3:PATH"),
        (("medusa:/a", "eagle:/b"), {}, "expected one drafter of this place"),
        (("medusa:/a",), {"is_colocated": False}, "it is in the target's process"),
        (("early_exit",), {"pipeline": "ahead"}, "it is in the target's process"),
        (("ngram:3",), {}, "expected ngram"),
    ],
)
def test_what_cannot_be_is_refused(drafters, options, message):
    with pytest.raises(InvalidConfig, match=message):
        EngineOptions(drafters=drafters, **options)


def test_a_draft_model_and_a_head_are_refused():
    options = EngineOptions(drafters=("draft", "early_exit"))
    with pytest.raises(InvalidConfig, match="the drafter early_exit and the draft model"):
        EngineConfig(architectures.DEMO / "target", architectures.DEMO / "draft", options)
    EngineConfig(architectures.DEMO / "target", None, options)


def reads_its_own_token(monkeypatch):
    """The state of the token itself, and not of the one before."""
    rows = HeadRunner._target_rows

    def mutant(self, cache, positions):
        return rows(self, cache, positions - 1)

    monkeypatch.setattr(HeadRunner, "_target_rows", mutant)


async def test_a_state_of_another_token_is_seen_in_what_is_accepted(right, monkeypatch):
    target, heads = right
    reads_its_own_token(monkeypatch)
    engine = await started(target, (heads["medusa"],))
    sampling = SamplingParams(0.0, max_tokens=60, ignores_eos=True)
    asked = [Request((5, after(5)), sampling, seed=1)]
    assert await output(engine, speculating(asked[0], k=4)) == (await alone(engine, asked))[0]
    assert engine.statistics.snapshot().acceptance_rate < 0.1
    await engine.stop()


@pytest.mark.parametrize("kind", [*KINDS, "early_exit"])
async def test_in_bf16_too(right, kind):
    target, heads = right
    engine = await started(target, (heads[kind],), dtype="bfloat16", numerics="fast")
    sampling = SamplingParams(0.0, max_tokens=40, ignores_eos=True)
    asked = [Request((5 + at, after(5 + at)), sampling, seed=at) for at in range(3)]
    expected = await alone(engine, asked)
    got = await asyncio.gather(*(output(engine, speculating(each, k=4)) for each in asked))
    assert [ids for ids, *_ in got] == [ids for ids, *_ in expected]
    assert engine.statistics.snapshot().acceptance_rate > 0.9
    await engine.stop()
