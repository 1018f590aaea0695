"""From what the operator named to a head that drafts: recognised, probed, and given its taps."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from outrider.actors.errors import InvalidConfig, ModelRefused
from outrider.actors.heads.checkpoint import load_checkpoint
from outrider.actors.heads.eagle import Convention, EagleNet
from outrider.actors.heads.early_exit import EarlyExitRunner
from outrider.actors.heads.head_runner import EagleRunner, HeadRunner, MedusaRunner
from outrider.actors.heads.medusa import MedusaNet
from outrider.actors.heads.probing.conventions import conventions
from outrider.actors.heads.probing.probe_text import POOL_TOKENS, ProbeText, probe_text
from outrider.actors.heads.probing.scores import eagle_share, exit_share, medusa_share
from outrider.actors.heads.target_parts import TargetParts
from outrider.actors.lookahead.round_report import EARLY_EXIT, MEDUSA
from outrider.actors.runner.runner import Runner
from outrider.actors.runner.taps import Taps
from outrider.actors.text.user_turn import UserTurn

EXITS = (1 / 4, 1 / 3, 1 / 2, 2 / 3)  # of the target's layers, that are tried
KS = range(1, 9)
CHANCE = 0.03  # two scores of one quality, of 256 places

Scores = tuple[tuple[str, float], ...]  # a way that was tried, and its share of right first tokens

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedHead:
    """A head, and what was found of it."""

    runner: HeadRunner
    kind: str
    scores: Scores  # that of the way which was taken first


def load_head(
    kind: str,
    value: str,
    target: Runner,
    min_score: float,
    turn: Callable[[], UserTurn | None] = lambda: None,
    known: Scores = (),
) -> LoadedHead:
    """`value`: a head's folder; of an early exit a number of layers, or "" to find one. `turn` is
    called if anything is tried: where the target chats, over chats. `known`: scores of an earlier
    load, whose ways are not tried again. The pool of what comes is as large as the target's.
    Nothing of the target may be open.

    Raises ModelRefused, and InvalidConfig for a number of layers.
    """
    if kind == EARLY_EXIT:
        return _early_exit(value, target, min_score, turn, known)
    checkpoint = load_checkpoint(Path(value), target.loaded.dtype, target.loaded.device)
    if checkpoint.kind != kind:
        raise ModelRefused(
            f"{value}: got the tensors of a head of kind {checkpoint.kind!r}, asked for as "
            f"{kind!r}; accepted: {checkpoint.kind}:{value}"
        )
    parts = TargetParts.of(target)
    tried = list(conventions(checkpoint, parts))
    boundaries = {at for each in tried for at in each.boundaries}
    text = cache(lambda: probe_text(target, boundaries, turn()))
    num_tokens = target.pool.num_pages * target.pool.page_size
    runner: HeadRunner
    if kind == MEDUSA:
        medusa = MedusaNet(checkpoint, parts)
        found = _scores(tried, known, lambda way: medusa_share(medusa, way.boundaries[0], text()))
        taps = Taps(tried[0].boundaries, parts.hidden_size, lambda states: states)
        runner = MedusaRunner(target, medusa, num_tokens)
    else:
        net = EagleNet(checkpoint, parts, tried[0])
        found = _scores(tried, known, lambda way: _eagle_share(net, text(), way))
        net.run_as(tried[0])
        taps = Taps(tried[0].boundaries, net.sizes.hidden, net.fuse)
        runner = EagleRunner(target, net, num_tokens)
    _check(f"{kind}:{value}", found, min_score)
    target.tap(taps)
    return LoadedHead(runner, kind, found)


def _eagle_share(net: EagleNet, text: ProbeText, way: Convention) -> float:
    net.run_as(way)
    return eagle_share(net, text)


def _scores(
    tried: list[Convention], known: Scores, share_of: Callable[[Convention], float]
) -> Scores:
    """All scores, that of the way which is taken first; so is `tried` from then on.

    The best, or one before it in `tried` that is as good but for chance; the others by their score.
    Those that are known, where they are of the same ways.
    """
    order = [way for way, _ in known]
    if sorted(order) == sorted(map(str, tried)):
        tried.sort(key=lambda way: order.index(str(way)))
        return known
    scored = sorted(((share_of(way), way) for way in tried), key=lambda found: -found[0])
    alike = {way for share, way in scored if share >= scored[0][0] - CHANCE}
    first = next(way for way in tried if way in alike)
    scored.sort(key=lambda found: found[1] != first)
    tried[:] = [way for _, way in scored]
    return tuple((str(way), share) for share, way in scored)


def _check(name: str, scores: Scores, min_score: float) -> None:
    """Raises ModelRefused where the best is not good enough."""
    told = "; ".join(f"{share:.3f} with {way}" for way, share in scores)
    log.info("%s: first tokens right: %s", name, told)
    way, share = scores[0]
    if share < min_score:
        raise ModelRefused(
            f"{name}: got {share:.2f} of first tokens right over the target's own text, the best "
            f"of {len(scores)} ways to run it ({way}); expected at least engine.min_head_score="
            f"{min_score:g}: is it made for this target?"
        )


def _early_exit(
    value: str,
    target: Runner,
    min_score: float,
    turn: Callable[[], UserTurn | None],
    known: Scores,
) -> LoadedHead:
    num_layers = target.model.num_layers
    if value and not value.isdecimal():
        raise InvalidConfig(
            f"Got {EARLY_EXIT}:{value}, expected a number of layers, 1 to {num_layers - 1}"
        )
    tried = [int(value)] if value else sorted({max(1, round(num_layers * at)) for at in EXITS})
    names = {f"the first {num} of {num_layers} layers": num for num in tried}
    if names.keys() == dict(known).keys():
        return LoadedHead(EarlyExitRunner(target, names[known[0][0]]), EARLY_EXIT, known)
    text = probe_text(target, set(), turn())
    num_tokens = target.pool.num_pages * target.pool.page_size
    target.resize(POOL_TOKENS)  # its own may be smaller than the texts
    scored = []
    for name, num in names.items():
        share = exit_share(EarlyExitRunner(target, num), text)
        scored.append((_gain(share, num / num_layers), name, share))
    target.resize(num_tokens)
    scored.sort(key=lambda found: (found[2] < min_score, -found[0]))
    found = tuple((name, share) for _, name, share in scored)
    _check(EARLY_EXIT, found, min_score)
    return LoadedHead(EarlyExitRunner(target, names[scored[0][1]]), EARLY_EXIT, found)


def _gain(share: float, cost: float) -> float:
    """Tokens in the time of one of the target's forwards, with a chain of the best length.

    >>> round(_gain(0.8, 0.25), 2)
    1.69
    """
    return max(sum(share**at for at in range(k + 1)) / (1 + k * cost) for k in KS)
