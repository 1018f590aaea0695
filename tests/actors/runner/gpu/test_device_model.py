"""Whole steps as a device runs them: staged, captured, replayed with other numbers."""

import random

import pytest
import torch
from actors.runner.gpu.held import Held
from actors.runner.gpu.replayers import Traced, as_device
from actors.runner.test_architectures import VOCAB, far_from_plain, rows_not_bitwise

from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.gpu import staging
from outrider.actors.runner.gpu.device_model import DeviceModel
from outrider.actors.runner.gpu.products import AT_ONCE, product
from outrider.actors.runner.model_loader import from_model
from outrider.actors.runner.runner import Runner

LONGEST, TOLERANCE = 48, 2e-5
NUM_STEPS = 1000
FUSED = ("llama", "qwen2", "qwen3", "mistral", "phi3")


@pytest.fixture
def runner_of(build, monkeypatch):
    def make(architecture):
        traced = as_device(monkeypatch, Traced())
        runner = Runner(from_model(build(architecture)), num_tokens=640, numerics="fast")
        return runner, traced

    return make


class Walk:
    """Random steps over a few sequences: chunks, decoding, chains and trees, in any company."""

    def __init__(self, runner, seed):
        self.runner, self.random = runner, random.Random(seed)
        self.texts = [(runner.open(), []) for _ in range(5)]
        self.told = []

    def step(self):
        some = self.random.sample(self.texts, self.random.randint(1, len(self.texts)))
        asks = [self.ask(cache, text) for cache, text in some]
        rows = self.runner.forward([segment for segment, _, _ in asks])
        for segment, paths, keep in asks:
            own, rows = rows[: segment.num_logits], rows[segment.num_logits :]
            self.told += [(path, own[at : at + 1]) for at, path in paths]
            keep()

    def ask(self, cache, text):
        """A segment, the texts that end in its rows, and what is kept of it."""
        kind = self.random.choice(["chunk", "decode", "chain", "tree"])
        if len(text) > LONGEST or (kind == "tree" and not text):
            self.runner.rollback(cache, cut := self.random.randint(0, 8))
            del text[cut:]
        count = {"chunk": self.random.randint(1, 20), "decode": 1}.get(kind, 5)
        ids = [self.random.randrange(1, VOCAB) for _ in range(count)]
        base = list(text)
        if kind == "tree":
            parents = [self.random.randint(-1, at - 1) for at in range(count)]
            paths = [path_of(parents, at) for at in range(count)]
            segment = Segment(cache, ids, count, parents)
            chosen = self.random.choice(paths)

            def keep():
                self.runner.accept_path(cache, len(base), chosen)
                text.extend(ids[node] for node in chosen)

            told = [(at, base + [ids[n] for n in path]) for at, path in enumerate(paths)]
            return segment, told, keep
        kept = self.random.randint(1, count) if kind == "chain" else count
        num_logits = self.random.randint(0, count) if kind == "chunk" else count

        def keep_some():
            self.runner.rollback(cache, len(base) + kept)
            text.extend(ids[:kept])

        first = count - num_logits
        told = [(at, base + ids[: first + at + 1]) for at in range(num_logits)]
        return Segment(cache, ids, num_logits), told, keep_some


def path_of(parents, node):
    path = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]


def test_random_steps(architecture, build, runner_of):
    """Replays of a thousand steps give the plain model's rows."""
    runner, _ = runner_of(architecture)
    walk, on_device = Walk(runner, 1), runner.model.on_device
    for _ in range(NUM_STEPS):
        walk.step()
    some = random.Random(2).sample(walk.told, 300)
    assert far_from_plain(some, build(architecture)) < TOLERANCE
    assert (runner.model.fused_body is not None) == (architecture in FUSED)
    assert not on_device.refusal
    assert on_device.num_replayed > NUM_STEPS * 0.5


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_a_layer_is_few_launches(architecture, runner_of):
    """Ten: products, what stands between them, attention's two. None asks the device."""
    runner, traced = runner_of(architecture)
    walk = Walk(runner, 1)
    for _ in range(40):
        walk.step()
    launches = {"store": 1, "attend": 2, "place": 1, "add_norm": 1, "gate": 1, "mm": 1, "addmm": 1}
    for graph in traced.graphs:
        names = [getattr(node.target, "_opname", "") for node in graph.graph.nodes]
        own = sum(launches.get(name, 0) for name in names)
        layers = len(runner.model.fused_body.layers)
        assert own <= 10 * layers + 3  # the rotation, the norm, the head
        assert not {"_local_scalar_dense", "nonzero", "copy_"} & set(names)


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_a_step_holds_as_much_as_computed(architecture, runner_of):
    """Of each token its state, what is added to it and its norm; the rotation; queries and what
    attention makes of them; gates, ups and their products. Of the longest chunk, logits beside.
    """
    runner, _ = runner_of(architecture)
    config, cache = runner.loaded.model.config, runner.open()
    runner.forward([Segment(cache, [3] * 300)])  # the staging's room is made once
    width, heads = config.hidden_size, config.num_attention_heads * config.head_dim
    layer = 3 * width + 2 * config.head_dim + 2 * heads + 3 * config.intermediate_size
    for num_tokens, num_logits in ((32, 1), (300, 1), (300, 300)):
        runner.rollback(cache, 0)
        with Held() as held:
            runner.forward([Segment(cache, [3] * num_tokens, num_logits)])
        end = num_tokens * (4 * width + 2 * config.head_dim) + num_logits * (width + VOCAB)
        assert held.most // 4 <= max(num_tokens * layer, end) * 1.02
        assert held.most // 4 >= max(num_tokens * layer, end) * 0.8


def in_mlp(model, what):
    """Something more in the first MLP's forward."""
    mlp = model.base_model.layers[0].mlp
    forward = mlp.forward
    mlp.forward = lambda x: forward(what(x))


@pytest.mark.parametrize(
    "what",
    [lambda x: x * (1 + 0 * x.sum().item()), lambda x: x + 0 if x.sum() > 1e9 else x],
    ids=["an item", "a branch"],
)
def test_what_asks_the_host_is_not_captured(build, monkeypatch, what):
    """It runs as it is, right, and the reason is there."""
    as_device(monkeypatch, Traced())
    model = build("gemma2")
    in_mlp(model, what)
    runner = Runner(from_model(model), num_tokens=640, numerics="fast")
    walk = Walk(runner, 1)
    for _ in range(30):
        walk.step()
    assert runner.model.steps == ("launched one by one", runner.model.on_device.refusal)
    assert runner.model.on_device.num_replayed == 0
    assert far_from_plain(walk.told, build("gemma2")) < TOLERANCE


def baked(name):
    """A copy where a step's tensor should be: the graph would read the first step's for ever."""
    send = staging.Staging.send

    def wrong(self, *args):
        staged = send(self, *args)
        values = {each: getattr(staged, each) for each in staging.Staged.__slots__}
        return staging.Staged(**values | {name: values[name].clone()})

    return wrong


@pytest.mark.parametrize("name", ["positions", "write", "at", "ends", "masks", "tiles"])
def test_a_baked_in_number_is_caught(build, runner_of, monkeypatch, name):
    architecture = "gemma2" if name == "at" else "llama"  # the former has windows
    runner, _ = runner_of(architecture)
    monkeypatch.setattr(staging.Staging, "send", baked(name))
    walk = Walk(runner, 1)
    for _ in range(30):
        walk.step()
    assert not far_from_plain(walk.told, build(architecture)) < 1e-2


def test_what_runs_is_told(build, monkeypatch, make_runner):
    assert make_runner("llama").model.steps == ("", "")
    as_device(monkeypatch, Traced())
    for architecture, numerics, steps in (
        ("llama", "fast", ("CUDA graphs", "layers of ten launches")),
        ("gemma2", "fast", ("CUDA graphs", "layers as Hugging Face wrote them")),
        ("llama", "exact", ("CUDA graphs", "layers of ten launches")),
    ):
        runner = Runner(from_model(build(architecture)), num_tokens=64, numerics=numerics)
        assert runner.model.steps == steps


@pytest.fixture
def exact_of(build, monkeypatch):
    def make(architecture):
        as_device(monkeypatch, Traced())
        return Runner(from_model(build(architecture)), num_tokens=1280, numerics="exact")

    return make


def alone(runner, text):
    cache = runner.open()
    row = runner.forward([Segment(cache, text)])
    runner.close(cache)
    return row


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma2", "gpt2"])
def test_exact_rows_are_those_of_the_text_alone(exact_of, build, architecture):
    """Bit for bit, in any company, of chains and trees, as it is and replayed."""
    runner = exact_of(architecture)
    assert (runner.numerics, runner.model.steps[0]) == ("exact", "CUDA graphs")
    walk = Walk(runner, 1)
    for _ in range(40):
        walk.step()
    some = random.Random(2).sample(walk.told, 20)
    assert not rows_not_bitwise(some, runner)
    assert far_from_plain(some, build(architecture)) < TOLERANCE
    assert runner.model.on_device.num_replayed > 20


def test_with_experts_by_row_steps_are_captured_anew(runner_of, build):
    """Mixtral is exact then, too: it takes long to trace 64 rows of it."""
    runner, traced = runner_of("mixtral")
    num_graphs = []
    for _ in range(2):
        for _ in range(3):
            row = alone(runner, [3])
        num_graphs.append(len(traced.graphs))
        assert runner.model.isolate_experts() == (len(num_graphs) == 1)
    assert num_graphs[1] > num_graphs[0]
    assert far_from_plain([([3], row)], build("mixtral")) < TOLERANCE


@pytest.mark.parametrize("name", ["nodes", "offsets", "tiles"])
def test_a_baked_in_number_makes_other_bits(exact_of, monkeypatch, name):
    walk, sound = Walk(exact_of("llama"), 1), exact_of("llama")
    with monkeypatch.context() as patch:
        patch.setattr(staging.Staging, "send", baked(name))
        for _ in range(30):
            walk.step()
    assert rows_not_bitwise(random.Random(2).sample(walk.told, 20), sound)


def test_exact_trees_may_be_large(exact_of):
    """Deeper than a window, and of more nodes than a mask has bits."""
    runner = exact_of("gemma2")
    cache, text = runner.open(), [5, 6, 7]
    runner.forward([Segment(cache, text, 0)])
    ids = [1 + at % 99 for at in range(300)]
    parents = [*range(-1, 99), *(at % 100 for at in range(200))]
    rows = runner.forward([Segment(cache, ids, 300, parents)])
    for node in (0, 50, 99, 100, 299):
        path = [ids[at] for at in path_of(parents, node)]
        assert torch.equal(alone(runner, text + path)[0], rows[node])


def of_any_number(x, weight, bias, *, is_exact):
    """A product of which a row depends on how many there are."""
    return torch.nn.functional.linear(x, weight, bias) * (1 + 1e-6 * (x.numel() % 3))


def test_a_product_that_knows_its_company_is_not_exact(exact_of, monkeypatch):
    monkeypatch.setattr("outrider.actors.runner.gpu.products.product", of_any_number)
    monkeypatch.setattr("outrider.actors.runner.gpu.fused_body.product", of_any_number)
    runner = exact_of("llama")
    assert runner.numerics == "fast"
    assert "logits change" in runner.numerics_reason


def test_products_are_always_of_as_many_rows():
    """On a GPU as many take another kernel than fewer, or more."""
    torch.manual_seed(0)
    weight, bias, sizes = torch.randn(24, 40), torch.randn(24), []

    class Counted(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if function is torch.nn.functional.linear:
                sizes.append(len(args[0]))
            return super().__torch_function__(function, types, args, kwargs or {})

    for num in (1, 63, 64, 65, 200):
        x = torch.randn(1, num, 40)
        made = product(x.as_subclass(Counted), weight, bias, is_exact=True)
        assert torch.allclose(made, torch.nn.functional.linear(x, weight, bias), atol=1e-5)
    assert set(sizes) == {AT_ONCE}


def test_large_trees_and_other_windows_go_another_way(build, monkeypatch):
    """What the kernels cannot mask is gathered: the rows are the plain model's all the same."""
    as_device(monkeypatch, Traced())
    runner = Runner(from_model(build("gemma2")), num_tokens=1024, numerics="fast")
    asked = []
    suits = DeviceModel.suits
    monkeypatch.setattr(DeviceModel, "suits", lambda *args: asked.append(suits(*args)) or asked[-1])
    text, cache = [5, 6, 7], runner.open()
    runner.forward([Segment(cache, text)])
    ids = [1 + at % 99 for at in range(40)]
    chain = list(range(-1, 39))  # a tree that is one path, deeper than a window
    rows = runner.forward([Segment(cache, ids, 40, chain)])
    told = [(text + ids[: at + 1], rows[at : at + 1]) for at in range(40)]
    assert far_from_plain(told, build("gemma2")) < 1e-4
    runner.rollback(cache, 3)
    wide = runner.forward([Segment(cache, [9] * 300, 300, [-1] * 300)])
    assert far_from_plain([([*text, 9], wide[299:])], build("gemma2")) < 1e-4
    assert asked[1:] == [False, False]


@torch.inference_mode()
def test_taps_change_no_bit(runner_of, build):
    """With taps or without: the same logits, and the states that transformers shows."""
    from outrider.actors.runner.taps import Taps

    for architecture in ("llama", "gemma2"):
        runner, _ = runner_of(architecture)
        layers, width = runner.model.num_layers, runner.loaded.model.config.hidden_size
        boundaries = (0, 1, layers, layers + 1)
        found = []
        for taps in (None, Taps(boundaries, len(boundaries) * width, lambda x: x)):
            runner.tap(taps)
            for _ in range(3):  # as it is, captured, replayed
                cache = runner.open()
                rows = runner.forward([Segment(cache, [3, 1, 4, 1, 5], 5)])
                places = [runner.pool.row(cache, at) for at in range(5)]
                kept = None if taps is None else runner.pool.features[places].clone()
                found.append(rows)
                runner.close(cache)
        assert all(torch.equal(rows, found[0]) for rows in found)
        out = build(architecture)(torch.tensor([[3, 1, 4, 1, 5]]), output_hidden_states=True)
        states = torch.cat([out.hidden_states[b][0] for b in (0, 1)], -1)
        assert (kept[:, : 2 * width] - states).abs().max() < 1e-4
        normed = out.hidden_states[-1][0]
        assert (kept[:, -width:] - normed).abs().max() < 1e-4
