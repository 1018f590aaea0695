"""The textbook loop over Hugging Face models: their distribution, by chi-square, and their text."""

import architectures
import numpy as np
import pytest
from scipy import stats

from outrider.actors.reference.decoder_models import DecoderDraft, DecoderTarget
from outrider.actors.reference.model_decoder import ModelDecoder
from outrider.actors.reference.speculative_decoder import (
    BadConfig,
    DraftProposal,
    SpeculativeConfig,
    SpeculativeDecoder,
)
from outrider.actors.runner.model_loader import from_model
from outrider.actors.runner.runner import Runner
from outrider.kernels.cpu.backend import CpuBackend
from outrider.kernels.ops.distribution import softmax, top_p_filter

VOCAB, PROMPT = 8, [1, 5, 2]
BACKEND = CpuBackend()


@pytest.fixture(scope="module")
def models():
    def built(seed, scale):
        model = architectures.build("llama", vocab_size=VOCAB, seed=seed, scale=scale)
        return Runner(from_model(model), num_tokens=4096)

    return built(0, 2.0), built(1, 2.0)


def pair(models, temperature=1.0, draft_temperature=1.0, top_p=1.0, seed=0):
    """A draft and a target, whose decoders forget nothing that they need not."""
    draft, target = (ModelDecoder(runner) for runner in models)
    return (
        DecoderDraft(draft, VOCAB, draft_temperature, top_p, seed=seed),
        DecoderTarget(target, VOCAB, temperature, top_p),
    )


def loop(draft, target, seed=0, **config):
    return SpeculativeDecoder(draft, target, BACKEND, SpeculativeConfig(**config), seed)


@pytest.mark.parametrize("draft_temperature", [1.0, 0.0], ids=["drawn", "likeliest"])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_two_tokens_have_the_targets_joint_distribution(models, draft_temperature, top_p):
    """3,000 samples; a false alarm has odds of 1 in 10^6."""
    draft, target = pair(models, draft_temperature=draft_temperature, top_p=top_p)
    counts = np.zeros((VOCAB, VOCAB))
    for seed in range(3000):
        one, two = loop(draft, target, seed, k=2).generate(PROMPT, 2)
        counts[one, two] += 1
    decoder = ModelDecoder(models[1])

    def probs(ids):
        decoder.rollback_to(0)
        decoder.observe(ids)
        return softmax(top_p_filter(decoder.next_logits().double().numpy(), top_p))

    expected = np.array([p * probs([*PROMPT, at]) for at, p in enumerate(probs(PROMPT))]) * 3000
    decoder.close()
    assert counts[expected == 0].sum() == 0
    rare = (expected < 5) & (expected > 0)
    cells = [*zip(counts[expected >= 5], expected[expected >= 5], strict=True)]
    if rare.any():
        cells.append((counts[rare].sum(), expected[rare].sum()))
    found, wanted = zip(*cells, strict=True)
    assert len(cells) >= 4
    assert stats.chisquare(found, wanted).pvalue > 1e-6


def test_at_temperature_0_it_is_the_targets_greedy_text(models):
    decoder, expected = ModelDecoder(models[1]), []
    decoder.observe(PROMPT)
    for _ in range(30):
        expected.append(int(decoder.next_logits().argmax()))
        decoder.observe(expected[-1:])
    decoder.close()
    for draft_temperature in (0.0, 1.0):
        draft, target = pair(models, 0.0, draft_temperature)
        found = loop(draft, target, k=3)
        assert found.generate(PROMPT, 30) == expected
        itself = DecoderDraft(ModelDecoder(models[1]), VOCAB)
        alike = loop(itself, target, k=3)
        assert alike.generate(PROMPT, 30) == expected
        assert alike.metrics.num_accepted == alike.metrics.num_proposed > 0


def test_a_draft_that_proposes_nothing_leaves_plain_decoding(models):
    class Silent:
        vocab_size = VOCAB

        def propose(self, prefix, k):
            return DraftProposal((), (), np.zeros((0, VOCAB)))

    _, target = pair(models, 0.0)
    decoder = loop(Silent(), target, k=4)
    text = decoder.generate(PROMPT, 10)
    draft, target = pair(models, 0.0)
    assert text == loop(draft, target, k=4).generate(PROMPT, 10)
    assert decoder.metrics.num_proposed == 0
    assert decoder.metrics.num_rounds == decoder.metrics.num_committed == 10


def test_too_few_accepted_end_drafting(models):
    class Wrong(DecoderDraft):
        def propose(self, prefix, k):
            found = super().propose(prefix, k)
            tokens = tuple((token + 3) % VOCAB for token in found.tokens)
            rows = np.roll(found.distributions, 3, axis=1)
            return DraftProposal(tokens, found.logprobs, rows)

    _, target = pair(models, 0.0)
    wrong = Wrong(ModelDecoder(models[1]), VOCAB)
    decoder = loop(wrong, target, k=4, min_acceptance_ratio=0.1)
    decoder.generate(PROMPT, 60)
    assert 32 <= decoder.metrics.num_proposed <= 36
    decoder.reset_metrics()
    decoder.generate(PROMPT, 4)
    assert decoder.metrics.num_proposed > 0
    with pytest.raises(BadConfig, match=r"min_acceptance_ratio=1\.5, expected 0 to 1"):
        SpeculativeConfig(min_acceptance_ratio=1.5)


def test_only_what_differs_is_computed_again(models, monkeypatch):
    runner, fed = models[1], []
    forward = runner.forward
    monkeypatch.setattr(
        runner,
        "forward",
        lambda chunks: fed.append(sum(len(chunk.tokens) for chunk in chunks)) or forward(chunks),
    )
    target = DecoderTarget(ModelDecoder(runner), VOCAB)
    target.verify([1, 2, 3, 4], [5, 6])
    target.verify([1, 2, 3, 4, 5, 7], [1])
    assert fed == [4, 2, 1, 1]  # the prompt, two drafts; of those one stays; then one draft
