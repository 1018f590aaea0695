"""Tree speculation over any runner, for users of the library: grow a tree, judge it in one forward
of the target, go on. By default the answer is the target's own, token for token.

    >>> from outrider.actors.runner.model_loader import load_model
    >>> from outrider.actors.runner.runner import Runner
    >>> from outrider.cluster.config.demo_models import demo_draft, demo_target
    >>> from outrider.kernels.cpu.backend import CpuBackend
    >>> runners = (Runner(load_model(each()), num_tokens=512) for each in (demo_draft, demo_target))
    >>> draft, target = map(ModelDecoder, runners)
    >>> decoder = TreeSpeculativeDecoder(draft, target, CpuBackend(), TreeConfig(depth=4))
    >>> answer = decoder.generate([10, 20, 30], max_tokens=16)
    >>> len(answer.tokens), answer.metrics.num_rounds < 16
    (16, True)

The draft may be a model of its own, `follower(head, target)` of a head or an early exit that
outrider.actors.heads has loaded, or anything else that is a TreeDecoder.
"""

from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch

from outrider.actors.reference.lossy import LossyRules
from outrider.actors.reference.model_decoder import GrowingDecoder, ModelDecoder
from outrider.actors.reference.speculative_decoder import (
    BadConfig,
    EmptyPrefix,
    RoundMetrics,
    TargetShape,
    VocabularyDiffers,
)
from outrider.actors.reference.token_tree import TokenTree, TreeConfig, TreeDecoder, grow
from outrider.actors.runner.kv.pool import PageTable
from outrider.kernels.contract.arrays import F32, I32, ContractError
from outrider.kernels.contract.trees import TreeBackend, Trees
from outrider.kernels.contract.verdict import (
    AcceptanceRule,
    DraftKind,
    DrawBatch,
    SamplingMetadata,
)
from outrider.kernels.ops.padded import Greedy, PaddedVerdicts, Sampled, cached_lengths, grown_cache

GREEDY = SamplingMetadata.of(rule=AcceptanceRule.GREEDY)


class FollowingRunner(Protocol):
    """A runner that reads its target's states, as those of heads do."""

    def follow(self, cache: PageTable, source: Callable[[], PageTable]) -> None: ...


def follower(runner: Any, target: ModelDecoder) -> ModelDecoder:
    """A decoder over a head or an early exit of this decoder's model: it must observe what the
    target has observed, behind it.
    """
    decoder = GrowingDecoder(runner)
    if hasattr(runner, "follow"):
        runner.follow(decoder.cache, lambda: target.cache)
    return decoder


@dataclass(frozen=True, slots=True)
class TreeVerdict:
    """What the target made of one tree."""

    path: tuple[int, ...]  # of accepted nodes
    tokens: tuple[int, ...]  # theirs, and the target's own behind them
    logprobs: tuple[float, ...]  # the target's, of each of these

    @property
    def num_accepted(self) -> int:
        return len(self.path)


@dataclass(frozen=True, slots=True)
class TreeAnswer:
    """Tokens, and how they came about."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    metrics: RoundMetrics
    lossy: str = ""  # the rule that made it another text than the target's


def judge(
    trees: Many[TokenTree],
    rows: Many[F32],
    sampling: SamplingMetadata,
    backend: TreeBackend[F32],
    positions: Many[int],
) -> list[TreeVerdict]:
    """Judge a batch. Shapes: rows [nodes, V] of each tree, the root's first; positions: of the
    token behind each root. Raises TargetShape.
    """
    if len(rows) != len(trees) or len(positions) != len(trees):
        raise TargetShape(
            f"Got {len(rows)} trees' logits and {len(positions)} positions, expected {len(trees)}"
        )
    for number, (tree, own) in enumerate(zip(trees, rows, strict=True)):
        if own.ndim != 2 or len(own) != len(tree.tokens) or own.shape[1] != rows[0].shape[1]:
            raise TargetShape(
                f"Got logits of shape {own.shape} for tree {number}, expected "
                f"[{len(tree.tokens)}, {rows[0].shape[1]}], one row a node"
            )
    num_rows = sum(len(tree.tokens) for tree in trees)
    nodes = [(tree, node) for tree in trees for node in range(1, len(tree.tokens))]
    parents = [tree.parents[node] - 1 if tree.parents[node] else node - 1 for tree, node in nodes]
    asked = Trees(
        num_nodes=np.array([len(tree.tokens) - 1 for tree in trees], np.int32),
        position=np.array(positions, np.int32),
        tokens=np.array([tree.tokens[node] for tree, node in nodes], np.int32),
        parents=np.array(parents, np.int32),
        kind=np.full(num_rows, DraftKind.MISSING, np.uint8),
        support_ids=np.full((num_rows, 1), -1, np.int32),
        support_probs=np.zeros((num_rows, 1), np.float32),
    )
    logits = np.concatenate([np.where(np.isnan(own), -np.inf, own) for own in rows])
    found = backend.verify_trees(np.ascontiguousarray(logits, np.float32), asked, sampling)
    verdicts = []
    for number, tree in enumerate(trees):
        if found.error[number]:
            raise TargetShape(f"Got no finite logit on the path of tree {number}, or +inf")
        count = int(found.num_accepted[number])
        path = tuple(int(node) + 1 for node in found.path[number, :count])
        tokens = (*(tree.tokens[node] for node in path), int(found.token[number]))
        logprobs = tuple(map(float, found.logprobs[number, : count + 1]))
        verdicts.append(TreeVerdict(path, tokens, logprobs))
    return verdicts


def judge_padded(
    trees: Many[TokenTree],
    rows: Many[F32],
    cache_tokens: I32,
    verification: Greedy | Sampled,
    backend: TreeBackend[F32],
) -> PaddedVerdicts:
    """The same with the tokens before each tree in one rectangle, [B, cache_len], padded with -1;
    it comes back grown by what was accepted. Raises TargetShape, ContractError.
    """
    lengths = cached_lengths(cache_tokens)
    if len(lengths) != len(trees):
        raise ContractError(f"Got cache_tokens of batch {len(lengths)}, expected {len(trees)}")
    if isinstance(verification, Greedy):
        sampling = SamplingMetadata.of(rule=AcceptanceRule.GREEDY, batch=len(trees))
    elif len(verification.seeds) != len(trees):
        raise ContractError(f"Got {len(verification.seeds)} seeds, expected {len(trees)}")
    else:
        sampling = SamplingMetadata.of(
            rule=AcceptanceRule.COUPLED,
            temperature=verification.temperature,
            seed=verification.seeds,
        )
    verdicts = judge(trees, rows, sampling, backend, lengths)
    accepted = tuple(verdict.tokens[:-1] for verdict in verdicts)
    following = tuple(verdict.tokens[-1] for verdict in verdicts)
    return PaddedVerdicts(accepted, following, grown_cache(cache_tokens, lengths, accepted))


class TreeSpeculativeDecoder:
    """One text at a time. Coupled verification: an answer depends on the seed, not on the draft."""

    def __init__(
        self,
        draft: TreeDecoder,
        target: TreeDecoder,
        backend: TreeBackend[F32],
        config: TreeConfig | None = None,
        sampling: SamplingMetadata = GREEDY,
        lossy: LossyRules | None = None,
        min_acceptance_ratio: float = 0.0,
    ) -> None:
        """min_acceptance_ratio: of levels of its trees, below which it decodes plainly. Raises
        BadConfig.
        """
        if sampling.rule.size != 1 or sampling.rule[0] == AcceptanceRule.REJECTION:
            raise BadConfig(
                "Got sampling of a batch or by rejection, expected one text's: greedy or coupled"
            )
        if not 0 <= min_acceptance_ratio <= 1:
            raise BadConfig(f"Got {min_acceptance_ratio=}, expected 0 to 1")
        self.metrics = RoundMetrics()
        self._draft, self._target, self._backend = draft, target, backend
        self._config, self._sampling = config or TreeConfig(), sampling
        self._lossy = lossy or LossyRules()
        self._min_ratio = min_acceptance_ratio

    @property
    def is_plain(self) -> bool:
        """Whether too little was accepted for it to go on drafting."""
        return self.metrics.is_below(self._min_ratio)

    def generate(
        self, prompt: Many[int], max_tokens: int, eos_token: int | None = None
    ) -> TreeAnswer:
        """Up to max_tokens behind the prompt, ending with the first EOS.

        Raises SpeculationError.
        """
        if not prompt:
            raise EmptyPrefix("Got an empty prompt, expected at least one token")
        if max_tokens < 1:
            raise BadConfig(f"Got max_tokens={max_tokens}, expected at least 1")
        tokens: list[int] = []
        logprobs: list[float] = []
        self._observe(prompt)
        while len(tokens) < max_tokens:
            verdict = self._round(max_tokens - len(tokens))
            found = verdict.tokens
            if eos_token in found:
                found = found[: found.index(eos_token) + 1]
            tokens += found
            logprobs += verdict.logprobs[: len(found)]
            self.metrics = replace(
                self.metrics, num_committed=self.metrics.num_committed + len(found)
            )
            if found[-1] == eos_token:
                break
            self._observe(found)
        return TreeAnswer(tuple(tokens), tuple(logprobs), self.metrics, self._lossy.name)

    def _observe(self, ids: Many[int]) -> None:
        self._target.observe(ids)  # a head reads the states that this leaves
        if not self.is_plain:
            self._draft.observe(ids)

    def _round(self, num_left: int) -> TreeVerdict:
        tree = TokenTree(self._target.history[-1])
        depth = min(len(self._config.level_sizes), num_left - 1)
        if depth and not self.is_plain:
            tree = grow(self._draft, replace(self._config, depth=depth))
        if (most := max(tree.tokens)) >= (width := self._target.vocab_size):
            raise VocabularyDiffers(f"Got a guess of {most}, expected tokens below {width}")
        rows = self._target.tree_logits(tree.tokens, tree.parents).float().numpy()
        verdict = self._verdict(tree, rows)
        now = self.metrics
        self.metrics = replace(
            now,
            num_rounds=now.num_rounds + 1,
            num_proposed=now.num_proposed + max(tree.depths),
            num_accepted=now.num_accepted + verdict.num_accepted,
        )
        return verdict

    def _verdict(self, tree: TokenTree, rows: F32) -> TreeVerdict:
        position = len(self._target.history)
        if not self._lossy.name:
            [verdict] = judge([tree], [rows], self._sampling, self._backend, [position])
            return verdict
        temperature = float(self._sampling.temperature[0])
        is_greedy = self._sampling.rule[0] == AcceptanceRule.GREEDY
        path = self._lossy.path(tree, rows, 0.0 if is_greedy else temperature)
        last = rows[[path[-1] if path else 0]]
        place = np.array([position + len(path)], np.int32)
        width = rows.shape[1]
        drawn = self._backend.draw(DrawBatch(last, self._sampling, place, vocab_size=width))
        if drawn.error[0]:
            raise TargetShape("Got no finite logit behind the accepted path, or +inf")
        tokens = (*(tree.tokens[node] for node in path), int(drawn.token[0]))
        behind = torch.from_numpy(rows[[0, *path]]).log_softmax(-1)
        logprobs = tuple(float(behind[row, token]) for row, token in enumerate(tokens))
        return TreeVerdict(path, tokens, logprobs)
