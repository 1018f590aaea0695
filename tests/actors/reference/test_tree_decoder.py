"""Tree speculation over real models and heads: the target's text, token for token."""

import architectures
import numpy as np
import pytest
import toy_heads
from scipy import stats
from toy_heads import cycling_target, random_head, save_head

from outrider.actors.heads.early_exit import EarlyExitRunner
from outrider.actors.heads.loading import load_head
from outrider.actors.reference.lossy import LossyRules, TypicalAcceptance
from outrider.actors.reference.model_decoder import ModelDecoder
from outrider.actors.reference.speculative_decoder import (
    BadConfig,
    EmptyPrefix,
    TargetShape,
    VocabularyDiffers,
)
from outrider.actors.reference.token_tree import TokenTree, TreeConfig, grow_batch
from outrider.actors.reference.tree_decoder import (
    TreeSpeculativeDecoder,
    follower,
    judge,
    judge_padded,
)
from outrider.actors.runner.model_loader import from_model, load_model
from outrider.actors.runner.runner import Runner
from outrider.kernels.contract.arrays import ContractError
from outrider.kernels.contract.verdict import AcceptanceRule, DrawBatch, SamplingMetadata
from outrider.kernels.cpu.backend import CpuBackend
from outrider.kernels.ops.distribution import softmax
from outrider.kernels.ops.padded import Greedy, Sampled
from outrider.kernels.reference.trees import verify_trees

BACKEND = CpuBackend()
PROMPTS = [3, 14, 15, 92, 65], [35], [89, 79, 32, 38]
SAMPLINGS = {
    "greedy": SamplingMetadata.of(rule=AcceptanceRule.GREEDY),
    "T=1": SamplingMetadata.of(rule=AcceptanceRule.COUPLED, seed=7),
    "T=0.7, top-p": SamplingMetadata.of(
        rule=AcceptanceRule.COUPLED, temperature=0.7, top_p=0.8, seed=8
    ),
}


def runner_of(name, seed=0):
    return Runner(from_model(architectures.build(name, seed=seed)), num_tokens=1024)


@pytest.fixture(scope="module", params=["llama", "gpt2", "gemma2"])
def target(request):
    return runner_of(request.param)


def drafts_of(target):
    """Name → a decoder beside one of the target's."""
    return {
        "the target itself": lambda _: ModelDecoder(target),
        "another model": lambda _: ModelDecoder(runner_of("llama", seed=5)),
        "its first layer": lambda own: follower(EarlyExitRunner(target, 1), own),
    }


class Oracle:
    verify_trees = staticmethod(verify_trees)


class Silent:
    """Nothing to guess, and nothing that minds."""

    history, vocab_size = (1,), 200

    def observe(self, ids):
        pass

    def tree_logits(self, tokens, parents):
        raise AssertionError("it was asked for a tree")


def plain(target, prompt, sampling, max_tokens=24):
    """One token after another, each the draw of its place."""
    decoder, tokens = ModelDecoder(target), []
    decoder.observe(prompt)
    for at in range(max_tokens):
        row = np.array([decoder.next_logits().numpy()])
        place = np.array([len(prompt) + at], np.int32)
        drawn = BACKEND.draw(DrawBatch(row, sampling, place, vocab_size=row.shape[1]))
        tokens.append(int(drawn.token[0]))
        decoder.observe(tokens[-1:])
    decoder.close()
    return tuple(tokens)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("shape", [(1, 4), (2, 3), (4, 2)], ids=str)
def test_the_answer_is_the_targets_whoever_drafts(target, sampling, shape):
    for prompt in PROMPTS[:2]:
        expected = plain(target, prompt, SAMPLINGS[sampling])
        for name, draft_of in drafts_of(target).items():
            own = ModelDecoder(target)
            draft = draft_of(own)
            decoder = TreeSpeculativeDecoder(
                draft, own, BACKEND, TreeConfig(*shape), SAMPLINGS[sampling]
            )
            answer = decoder.generate(prompt, len(expected))
            assert answer.tokens == expected, name
            assert answer.lossy == ""
            assert len(answer.logprobs) == len(expected)
            metrics = answer.metrics
            assert metrics.num_committed == len(expected)
            if name == "the target itself" and sampling == "greedy":
                assert metrics.num_accepted == metrics.num_proposed > 0
                assert metrics.num_rounds <= -(-len(expected) // (1 + shape[1])) + 1
            own.close()
            draft.close()


@pytest.mark.parametrize("kind", ["medusa", "eagle", "eagle3"])
def test_heads_draft_too(kind, tmp_path):
    """Right ones are accepted nearly always, wrong ones change nothing."""
    model = cycling_target()
    folder = architectures.save(model, tmp_path / "target")
    tensors = {
        "medusa": lambda: toy_heads.medusa_tensors(model),
        "eagle": toy_heads.eagle_tensors,
        "eagle3": lambda: toy_heads.eagle3_tensors(model),
    }[kind]()
    right = save_head(tmp_path / "right", toy_heads.CONFIG, tensors)
    wrong = random_head(kind, toy_heads.HIDDEN, toy_heads.VOCAB, tmp_path / "wrong")
    for path, least in ((right, 0.8), (wrong, 0.0)):
        target = Runner(load_model(folder), num_tokens=2048)
        head = load_head(kind, str(path), target, 0.0)
        expected = plain(target, PROMPTS[0], SAMPLINGS["greedy"])
        own = ModelDecoder(target)
        decoder = TreeSpeculativeDecoder(
            follower(head.runner, own), own, BACKEND, TreeConfig(2, 3), SAMPLINGS["greedy"]
        )
        answer = decoder.generate(PROMPTS[0], 24)
        assert answer.tokens == expected
        assert answer.metrics.num_accepted >= least * answer.metrics.num_proposed


def test_it_ends_with_eos_and_tells_log_probabilities(target):
    expected = plain(target, PROMPTS[0], SAMPLINGS["greedy"])
    eos = expected[5]
    end = expected.index(eos) + 1
    own = ModelDecoder(target)
    decoder = TreeSpeculativeDecoder(ModelDecoder(target), own, BACKEND, TreeConfig(2, 3))
    answer = decoder.generate(PROMPTS[0], 24, eos_token=eos)
    assert answer.tokens == expected[:end]
    alone = ModelDecoder(target)
    for at, token in enumerate(answer.tokens):
        alone.rollback_to(0)
        alone.observe([*PROMPTS[0], *answer.tokens[:at]])
        logprob = alone.next_logits().double().log_softmax(-1)[token]
        assert answer.logprobs[at] == pytest.approx(float(logprob), abs=1e-5)


def test_a_draft_that_is_never_right_is_given_up(target):
    class Wrong(ModelDecoder):
        def tree_logits(self, tokens, parents):
            return super().tree_logits(tokens, parents).roll(1, -1)

    expected = plain(target, PROMPTS[0], SAMPLINGS["greedy"], 60)
    own = ModelDecoder(target)
    decoder = TreeSpeculativeDecoder(
        Wrong(target), own, BACKEND, TreeConfig(1, 4), min_acceptance_ratio=0.5
    )
    assert decoder.generate(PROMPTS[0], 60).tokens == expected
    assert decoder.is_plain
    assert 32 <= decoder.metrics.num_proposed <= 36
    assert decoder.metrics.num_rounds > 40


def test_a_batch_grows_a_padded_cache(target):
    """Trees of two shapes, since one is sure; the same from the oracle."""
    decoders = [ModelDecoder(target) for _ in PROMPTS]
    for decoder, prompt in zip(decoders, PROMPTS, strict=True):
        decoder.observe(prompt)
    trees = grow_batch(decoders, TreeConfig(2, 2))
    trees[1] = grow_batch(decoders[1:2], TreeConfig(2, 2, early_exit_threshold=1e-6))[0]
    rows = [
        decoder.tree_logits(tree.tokens, tree.parents).numpy()
        for decoder, tree in zip(decoders, trees, strict=True)
    ]
    width = max(map(len, PROMPTS))
    cache = np.full((3, width), -1, np.int32)
    for at, prompt in enumerate(PROMPTS):
        cache[at, : len(prompt)] = prompt
    for verification, sampling in (
        (Greedy(), SAMPLINGS["greedy"]),
        (Sampled(1.0, (7, 7, 7)), SAMPLINGS["T=1"]),
    ):
        found = judge_padded(trees, rows, cache, verification, BACKEND)
        again = judge_padded(trees, rows, cache, verification, Oracle())
        assert (found.accepted, found.next_token) == (again.accepted, again.next_token)
        most = max(map(len, found.accepted))
        assert found.cache_tokens.shape == (3, width + most)
        for at, prompt in enumerate(PROMPTS):
            expected = plain(target, prompt, sampling, 3)
            accepted = found.accepted[at]
            assert (*accepted, found.next_token[at]) == expected[: len(accepted) + 1]
            kept = [token for token in found.cache_tokens[at].tolist() if token != -1]
            assert kept == [*prompt, *accepted]
        if isinstance(verification, Greedy):
            assert most == 2  # the target's own guesses
            assert len(found.accepted[1]) == 1


def uniform(nodes=3, width=8):
    tree = TokenTree(1)
    for token in range(nodes - 1):
        tree.add(0, token, 0.5)
    return tree, np.zeros((nodes, width), np.float32)


def padded(cache=((1,),), verification=None, rows=None):
    tree, own = uniform()
    return judge_padded(
        [tree],
        [own if rows is None else rows],
        np.array(cache, np.int32),
        verification or Greedy(),
        BACKEND,
    )


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: padded(rows=np.zeros((2, 8), np.float32)), TargetShape, r"expected \[3, 8\]"),
        (lambda: padded(rows=np.zeros((3, 4, 8), np.float32)), TargetShape, "one row a node"),
        (lambda: padded(rows=np.full((3, 8), np.nan, np.float32)), TargetShape, "no finite logit"),
        (lambda: padded(((1,), (2,))), ContractError, "batch 2, expected 1"),
        (lambda: padded(((-1, 1),)), ContractError, "padding before the end"),
        (lambda: padded(np.zeros((1, 0))), ContractError, "none zero"),
        (lambda: padded(verification=Sampled(1.0, (1, 2))), ContractError, "2 seeds, expected 1"),
        (lambda: Sampled(0.0, (1,)), ContractError, "temperature > 0"),
        (
            lambda: judge([uniform()[0]], [], SAMPLINGS["greedy"], BACKEND, [1]),
            TargetShape,
            "Got 0",
        ),
        (
            lambda: TreeSpeculativeDecoder(
                Silent(),
                Silent(),
                BACKEND,
                sampling=SamplingMetadata.of(rule=AcceptanceRule.REJECTION),
            ),
            BadConfig,
            "by rejection",
        ),
        (
            lambda: TreeSpeculativeDecoder(Silent(), Silent(), BACKEND, min_acceptance_ratio=2.0),
            BadConfig,
            "min_acceptance_ratio=2.0, expected 0 to 1",
        ),
        (
            lambda: TreeSpeculativeDecoder(Silent(), Silent(), BACKEND).generate([], 3),
            EmptyPrefix,
            "at least one token",
        ),
        (
            lambda: TreeSpeculativeDecoder(Silent(), Silent(), BACKEND).generate([1], 0),
            BadConfig,
            "max_tokens=0",
        ),
    ],
)
def test_misuse_is_a_typed_error(act, error, message):
    with pytest.raises(error, match=message):
        act()


def test_a_guess_beyond_the_targets_vocabulary_is_told(target):
    large = Runner(from_model(architectures.build("llama", vocab_size=300)), num_tokens=512)

    class Beyond(ModelDecoder):
        def tree_logits(self, tokens, parents):
            rows = super().tree_logits(tokens, parents)
            rows[:, 299] = 100.0
            return rows

    decoder = TreeSpeculativeDecoder(Beyond(large), ModelDecoder(target), BACKEND)
    with pytest.raises(VocabularyDiffers, match="a guess of 299, expected tokens below 200"):
        decoder.generate([1, 2], 8)


# Lossy rules: named, asked for, and another distribution than the target's.


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"acceptance_threshold": 0.5}, "acceptance_threshold=0.5 without allow_lossy=True"),
        ({"typical": TypicalAcceptance()}, r"typical\(epsilon=0.09, delta=0.3\) without"),
        ({"acceptance_threshold": 0.0, "allow_lossy": True}, "expected 0 < threshold ≤ 1"),
        (
            {"acceptance_threshold": 0.5, "typical": TypicalAcceptance(), "allow_lossy": True},
            "expected one of them",
        ),
    ],
)
def test_what_changes_the_answer_must_be_asked_for(rules, message):
    with pytest.raises(BadConfig, match=message):
        LossyRules(**rules)


@pytest.mark.parametrize("part", ["epsilon", "delta"])
@pytest.mark.parametrize("value", [0.0, 1.5])
def test_a_typical_acceptance_that_is_none_is_told(part, value):
    with pytest.raises(BadConfig, match=f"{part}={value}"):
        TypicalAcceptance(**{part: value})


RULES = {
    "acceptance_threshold": LossyRules(allow_lossy=True, acceptance_threshold=0.05),
    "typical": LossyRules(allow_lossy=True, typical=TypicalAcceptance()),
}


@pytest.mark.parametrize("name", RULES)
def test_a_lossy_rule_accepts_what_it_says_and_is_named(target, name):
    """Every drafted token that it keeps is as likely as the rule asks, the first that it leaves is
    not; more are kept than by the exact verdict.
    """
    rules, sampling = RULES[name], SAMPLINGS["T=1"]
    numbers = {}
    for lossy in (None, rules):
        own = ModelDecoder(target)
        draft = ModelDecoder(target)
        decoder = TreeSpeculativeDecoder(
            draft, own, BACKEND, TreeConfig(2, 3), sampling, lossy=lossy
        )
        answer = decoder.generate(PROMPTS[0], 60)
        numbers[lossy is not None] = answer.metrics.num_accepted / answer.metrics.num_proposed
        assert answer.lossy == ("" if lossy is None else rules.name)
        assert (answer.tokens == plain(target, PROMPTS[0], sampling, 60)) == (lossy is None)
    assert numbers[True] > numbers[False]


@pytest.mark.parametrize("name", RULES)
def test_the_longest_path_of_accepted_nodes_is_taken(name):
    """Against every path tried by hand, on random trees and logits."""
    rules, random = RULES[name], np.random.default_rng(1)
    for _ in range(200):
        tree = TokenTree(0)
        for token in random.permutation(12)[: random.integers(1, 9)]:
            tree.add(int(random.integers(len(tree.tokens))), int(token), 0.5)
        logits = random.normal(size=(len(tree.tokens), 12)) * 2
        probs = softmax(logits / 0.8)

        def is_kept(node, tree=tree, probs=probs):
            row = probs[tree.parents[node]]
            if rules.typical is None:
                return row[tree.tokens[node]] >= rules.acceptance_threshold
            entropy = -(row * np.log(row)).sum()
            return row[tree.tokens[node]] > min(0.09, 0.3 * np.exp(-entropy))

        lengths = [
            max(n for n in range(len(path) + 1) if all(map(is_kept, path[:n])))
            for path in tree.paths()
        ]
        found = rules.path(tree, logits, 0.8)
        assert len(found) == max(lengths)
        assert all(map(is_kept, found))


def test_typical_acceptance_is_another_distribution():
    """One draft, one token: it takes the drafted one always, where the target would one time in
    three. 2,000 draws; the exact verdict passes with odds of one false alarm in 10^6.
    """
    rules = RULES["typical"]
    row = np.log(np.array([[0.34, 0.33, 0.33]] * 2, np.float32))
    tree = TokenTree(0)
    tree.add(0, 1, 1.0)
    assert rules.path(tree, row, 1.0) == (1,)
    counts = np.zeros(3)
    for seed in range(2000):
        sampling = SamplingMetadata.of(rule=AcceptanceRule.COUPLED, seed=seed)
        [verdict] = judge([tree], [row], sampling, BACKEND, [1])
        counts[verdict.tokens[0]] += 1
    expected = np.exp(row[0].astype(float))
    expected *= 2000 / expected.sum()
    assert stats.chisquare(counts, expected).pvalue > 1e-6
    lossy = np.zeros(3)  # the rule asks no seed
    lossy[tree.tokens[rules.path(tree, row, 1.0)[0]]] = 2000
    assert stats.chisquare(lossy, expected).pvalue < 1e-6
