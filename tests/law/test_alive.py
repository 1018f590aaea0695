"""What the engine survives: many streams, cancellation, deaths of real processes, odd drafts."""

import asyncio
import json
import os
import shutil

import architectures
import pytest
from batches import drained, output, speculating

from outrider.actors.engine.config import EngineConfig, EngineOptions
from outrider.actors.engine.engine import Engine
from outrider.actors.errors import InvalidConfig, InvalidRequest, ModelRefused, VocabularyMismatch
from outrider.actors.executor.executor import InlineExecutor, ProcessExecutor
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import MAX_K, SamplingParams, SpeculationParams


async def rest_of(stream):
    return [chunk async for chunk in stream]


def prompt_of(engine, text="What does str.split do?"):
    return tuple(engine.tokenizer.render_chat([{"role": "user", "content": text}]))


@pytest.mark.parametrize("executor", ["inline", "process"])
async def test_32_streams_and_half_of_them_cancelled(engine_of, executor):
    async with engine_of("demo", "own", executor=executor) as engine:
        sampling = SamplingParams(temperature=1.0, max_tokens=128, ignores_eos=True)
        prompt = prompt_of(engine)
        asked = [Request(prompt, sampling, seed) for seed in range(4)] * 8
        plain = [await output(engine, speculating(each, is_enabled=False)) for each in asked[:4]]
        assert await asyncio.gather(*(output(engine, each) for each in asked)) == plain * 8
        await drained(engine)

        async def cancelled(request):
            stream = engine.generate(request)
            async for _ in stream:
                break
            await stream.aclose()

        halves = [
            cancelled(each) if i % 2 else output(engine, each) for i, each in enumerate(asked)
        ]
        kept = (await asyncio.gather(*halves))[::2]
        assert kept == (plain * 8)[::2]
        await drained(engine)
        pids = {worker.pid for worker in engine.health().workers}
    for pid in pids - {os.getpid()}:  # processes end with the engine
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_bad_requests_are_refused_by_name(engine_of):
    async with engine_of("demo", "own", kv_tokens=512) as engine:
        sampling = SamplingParams(max_tokens=4)
        for ids, message in [
            ((), "Got an empty prompt, expected at least one token"),
            ((4096,), "Got token id 4096 in prompt, expected 0 ≤ id < 4096"),
            ((-1,), "Got token id -1 in prompt"),
            ((5,) * 496, "Got a prompt of 496 tokens, expected fewer than the context's 496"),
            ((5,) * 494, "Got max_tokens=4 after a prompt of 494 tokens, expected at most 2"),
        ]:
            with pytest.raises(InvalidRequest, match=message):
                engine.generate(Request(ids, sampling, seed=0))
        assert len(await asyncio.gather(output(engine, Request((5,), sampling, 0)))) == 1


@pytest.mark.parametrize(("kv_tokens", "max_model_len"), [(8192, 1024), (512, 512 - MAX_K)])
async def test_one_length_is_checked_and_announced(engine_of, kv_tokens, max_model_len):
    """The context, or what the pool holds; a text of all of it is served, to its end."""
    async with engine_of("demo", "own", kv_tokens=kv_tokens) as engine:
        assert engine.info.context_len == 1024
        assert engine.info.max_model_len == max_model_len
        sampling = SamplingParams(max_tokens=8, ignores_eos=True)
        [ids, *_] = await output(engine, Request((5,) * (max_model_len - 8), sampling, seed=0))
        assert len(ids) == 8
        with pytest.raises(InvalidRequest, match="expected at most 7"):
            engine.generate(Request((5,) * (max_model_len - 7), sampling, seed=0))


async def test_a_pool_too_small_for_anything_is_refused(models):
    target, _ = models("demo", "own")
    config = EngineConfig(target, None, EngineOptions(kv_tokens=MAX_K))
    with pytest.raises(InvalidConfig, match=r"Got engine.kv_tokens=16, expected more than 16"):
        await Engine.start(config, InlineExecutor())


async def test_k_without_a_draft_is_refused(models):
    target, _ = models("demo", "own")
    engine = await Engine.start(
        EngineConfig(target, None, EngineOptions(drafters=())), InlineExecutor()
    )
    request = Request((5,), SamplingParams(max_tokens=3), 0, 0, SpeculationParams(k=2))
    with pytest.raises(InvalidRequest, match=r"Got speculation\.k=2, accepted 0"):
        engine.generate(request)
    assert len((await output(engine, speculating(request, k=0)))[0]) == 3
    await engine.stop()


# drafts that differ from their target


@pytest.fixture
def variant(models, tmp_path):
    """A copy of a model folder to be spoilt."""

    def copy_of(which):
        target, draft = models("demo", "own")
        folder = tmp_path / which
        shutil.copytree(target if which == "target" else draft, folder)
        return folder

    return copy_of


async def test_a_draft_of_another_vocabulary_is_refused_with_the_first_difference(models, variant):
    target, _ = models("demo", "own")
    draft = variant("draft")
    file = draft / "tokenizer.json"
    content = json.loads(file.read_text())
    vocab = content["model"]["vocab"]
    first, second = (next(t for t, i in vocab.items() if i == index) for index in (300, 301))
    vocab[first], vocab[second] = 301, 300
    content["model"]["merges"] = []
    file.write_text(json.dumps(content))
    message = r"target has 4096 tokens, draft 4096; first difference at id 300: target "
    with pytest.raises(VocabularyMismatch, match=message):
        await Engine.start(EngineConfig(target, draft), InlineExecutor())
    # Nor does anybody wait for models that are still loading.
    executor = Loading()
    with pytest.raises(VocabularyMismatch, match=message):
        async with asyncio.timeout(60):
            await Engine.start(EngineConfig(target, draft), executor)
    assert executor.is_closed


class Loading(InlineExecutor):
    """A trial that never has loaded."""

    is_inline = False
    is_closed = False

    async def start(self, spec):
        await asyncio.Event().wait()

    async def close(self):
        self.is_closed = True


async def check_draft(models, draft, reason, max_tokens=40):
    """Text is the target's own, and the draft was left off where it had to be."""
    target, _ = models("demo", "own")
    engine = await Engine.start(
        EngineConfig(target, draft, EngineOptions(numerics="exact", lookahead="fixed")),
        InlineExecutor(),
    )
    try:
        prompt = prompt_of(engine)
        sampling = SamplingParams(temperature=1.0, max_tokens=max_tokens, ignores_eos=True)
        request = Request(prompt, sampling, seed=3)
        expected = await output(engine, speculating(request, is_enabled=False))
        assert await output(engine, request) == expected
        assert engine.statistics.snapshot().num_drafted > 0
        assert engine.health().status == "ok", reason
    finally:
        await engine.stop()


async def test_padded_embeddings_of_the_draft_are_never_proposed(models, tmp_path):
    model = architectures.build("llama", 4096 + 64)
    await check_draft(models, architectures.save(model, tmp_path / "draft"), "padding")


async def test_a_draft_without_embeddings_for_some_ids_is_left_off_for_that_sequence(
    models, tmp_path
):
    model = architectures.build("llama", 4096 - 512)
    await check_draft(models, architectures.save(model, tmp_path / "draft"), "vocabulary")


async def test_a_short_context_draft_is_left_off_where_its_context_ends(models, variant):
    draft = variant("draft")
    file = draft / "config.json"
    config = json.loads(file.read_text())
    config["max_position_embeddings"] = 48
    file.write_text(json.dumps(config))
    await check_draft(models, draft, "context", max_tokens=80)


@pytest.mark.usefixtures("imported_once")
async def test_a_model_without_safetensors_is_refused_over_the_wire_too(models, variant):
    folder = variant("target")
    (folder / "model.safetensors").unlink()
    for executor in (InlineExecutor(), ProcessExecutor()):
        with pytest.raises(ModelRefused, match="safetensors"):
            await Engine.start(EngineConfig(folder), executor)
