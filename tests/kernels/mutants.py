"""Planted errors in the oracle's rules, each with the check that is there to catch it."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

from kernels import rules


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted error: `old` becomes `new` in one place of a module."""

    name: str
    module: str
    old: str
    new: str
    caught_by: Callable[[SimpleNamespace], None]


MUTANTS = [
    Mutant(
        "accepts on equality: <= for <",
        "acceptance_rules",
        "uniform * draft_prob < target_prob",
        "uniform * draft_prob <= target_prob",
        rules.zero_target_is_never_accepted,
    ),
    Mutant(
        "an epsilon in the test",
        "acceptance_rules",
        "uniform * draft_prob < target_prob",
        "uniform * draft_prob < target_prob + 1e-9",
        rules.zero_target_is_never_accepted,
    ),
    Mutant(
        "draft and target swapped in the test",
        "acceptance_rules",
        "uniform * draft_prob < target_prob",
        "uniform * target_prob < draft_prob",
        rules.rejection_is_lossless,
    ),
    Mutant(
        "draft and target swapped in the residual",
        "acceptance_rules",
        "np.maximum(target_probs - draft_probs, 0)",
        "np.maximum(draft_probs - target_probs, 0)",
        rules.rejection_is_lossless,
    ),
    Mutant(
        "residual not clipped",
        "acceptance_rules",
        "np.maximum(target_probs - draft_probs, 0)",
        "np.abs(target_probs - draft_probs)",
        rules.rejection_is_lossless,
    ),
    Mutant(
        "residual not renormalised: what it lacks comes from the target",
        "acceptance_rules",
        "        return j, chance.final(j, left, covered)",
        "        return j, chance.final(j, left + (1 - left.sum()) * target, covered)",
        rules.rejection_is_lossless,
    ),
    Mutant(
        "recovered token from the target row",
        "acceptance_rules",
        "left, covered = residual(target, draft), draft > 0",
        "left, covered = target, draft > 0",
        rules.rejection_is_lossless,
    ),
    Mutant(
        "bonus from the wrong row",
        "acceptance_rules",
        "bonus = target_row(len(tokens))",
        "bonus = target_row(len(tokens) - 1)",
        rules.rejection_is_lossless,
    ),
    Mutant(
        "the token after a rejection is judged too",
        "acceptance_rules",
        "target, draft = target_row(j), draft_row(j)",
        "target, draft = target_row(j), draft_row(0)",
        rules.rejection_is_lossless,
    ),
    Mutant(
        "a token without a draft row is accepted",
        "acceptance_rules",
        "            return j, chance.final(j, target, np.zeros(len(target), np.bool_))\n"
        "        if chance",
        "            continue\n        if chance",
        rules.missing_row_draws_from_the_full_target,
    ),
    Mutant(
        "a token without a draft row counts as one-hot",
        "acceptance_rules",
        "target, draft = target_row(j), draft_row(j)",
        "target, draft = target_row(j), draft_row(j)\n"
        "        draft = np.eye(len(target))[token] * 0.5 if draft is None else draft",
        rules.missing_row_draws_from_the_full_target,
    ),
    Mutant(
        "nothing left over is drawn from",
        "acceptance_rules",
        "if not left.any():",
        "if False:",
        rules.zero_residual_falls_back_to_the_target,
    ),
    Mutant(
        "coupled: the drafted token is emitted after a mismatch",
        "acceptance_rules",
        "            return j, drawn",
        "            return j, token",
        rules.coupled_emits_the_targets_own_draws,
    ),
    Mutant(
        "coupled: bonus from the wrong row",
        "acceptance_rules",
        "own_draw(len(tokens))",
        "own_draw(len(tokens) - 1)",
        rules.coupled_emits_the_targets_own_draws,
    ),
    Mutant(
        "key without the row's position",
        "backend",
        "position=self.position + row",
        "position=self.position",
        rules.noise_keys_are_the_designed_ones,
    ),
    Mutant(
        "key without the choice",
        "backend",
        "choice=self.choice",
        "choice=0",
        rules.noise_keys_are_the_designed_ones,
    ),
    Mutant(
        "choice and purpose share bits",
        "philox",
        "purpose | choice << 8",
        "purpose | choice << 1",
        rules.noise_keys_are_the_designed_ones,
    ),
    Mutant(
        "key without the seed's upper half",
        "philox",
        "low, high = whole & LOW, whole >> HALF",
        "low, high = whole & LOW, whole & LOW",
        rules.noise_keys_are_the_designed_ones,
    ),
    Mutant(
        "all four lanes the same",
        "philox",
        "ids & 3]",
        "ids & 0]",
        rules.noise_keys_are_the_designed_ones,
    ),
    Mutant(
        "accept uniform shared by siblings",
        "backend",
        "np.array([token], np.int32)",
        "np.array([0], np.int32)",
        rules.accept_uniform_is_the_tokens_own,
    ),
    Mutant(
        "accept uniform shared with the token race",
        "backend",
        "self.noise.bits(row, Purpose.ACCEPT",
        "self.noise.bits(row, Purpose.TOKEN",
        rules.accept_uniform_is_the_tokens_own,
    ),
    Mutant(
        "recovered token drawn with the draft's noise",
        "backend",
        "self.race(row, weights, covered, Purpose.FINAL)",
        "self.race(row, weights, covered, Purpose.DRAFT)",
        rules.final_race_has_its_own_noise,
    ),
    Mutant(
        "free ids: weights times E instead of over E",
        "row",
        "exps / noise)",
        "exps * noise)",
        rules.final_race_has_its_own_noise,
    ),
    Mutant(
        "covered ids: weights times E instead of over E",
        "row",
        "weights[ids] / exponentials[ids]",
        "weights[ids] * exponentials[ids]",
        rules.cpu_gives_the_same_bits,
    ),
    Mutant(
        "24-bit exponentials",
        "arithmetic",
        "near = -((bits.astype(np.float32) + half) * step)",
        "near = -(((bits >> 8 << 8).astype(np.float32) + half) * step)",
        rules.exponentials_are_precise_near_zero,
    ),
    Mutant(
        "ties dropped at the cut",
        "row",
        "np.where(z >= cut, z, MINUS_INF)",
        "np.where((z > cut) | (np.arange(len(z)) == (z == cut).argmax()), z, MINUS_INF)",
        rules.filters_keep_ties_and_their_order,
    ),
    Mutant(
        "top-p of the row before top-k",
        "row",
        "keep_top_p(keep_top_k(z, top_k), top_p)",
        "keep_top_k(keep_top_p(z, top_p), top_k)",
        rules.filters_keep_ties_and_their_order,
    ),
    Mutant(
        "greedy ties to the highest id",
        "backend",
        "return int(row.z.argmax())",
        "return int(len(row.z) - 1 - row.z[::-1].argmax())",
        rules.greedy_ties_go_to_the_lowest_id,
    ),
    Mutant(
        "log-probs of the sampled distribution",
        "backend",
        "raw_logprob(item.raw[j], emitted)",
        "item.row(j).logprob(emitted)",
        rules.logprobs_are_raw,
    ),
    Mutant(
        "the draft's row not renormalised",
        "backend",
        "probs = weights * (np.float32(1) / tree_sum(weights))",
        "probs = row.probs()[ids]",
        rules.support_is_what_was_drawn_from,
    ),
    Mutant(
        "the draft races with the target's noise",
        "backend",
        "exponentials(0, Purpose.DRAFT, ids)",
        "exponentials(0, Purpose.FINAL, ids)",
        rules.support_is_what_was_drawn_from,
    ),
    Mutant(
        "covered ids run in their tile's race",
        "row",
        "np.where(covered[t * TILE : (t + 1) * TILE], 0, exps / noise)",
        "np.where(covered[t * TILE : (t + 1) * TILE], exps / noise, exps / noise)",
        rules.cpu_gives_the_same_bits,
    ),
    Mutant(
        "a sum in another order",
        "arithmetic",
        "total = total[0::2] + total[1::2]",
        "total = total[: len(total) // 2] + total[len(total) // 2 :]",
        rules.cpu_gives_the_same_bits,
    ),
    Mutant(
        "fma rounded twice",
        "arithmetic",
        "np.where(inexact_even, bits + step, bits)",
        "np.where(inexact_even, bits, bits)",
        rules.fma_rounds_once,
    ),
    Mutant(
        "a polynomial without fma",
        "arithmetic",
        "        p = fma(p, f, term)\n    y = ",
        "        p = p * f + np.float32(term)\n    y = ",
        rules.maps_equal_the_compiled_ones,
    ),
    Mutant(
        "guesses of the recovered token raced with the accept noise",
        "backend",
        "purpose = Purpose.FINAL if self.rule",
        "purpose = Purpose.ACCEPT if self.rule",
        rules.guesses_are_the_race_in_order,
    ),
    Mutant(
        "guesses in any order",
        "row",
        'np.argsort(-scores, kind="stable")[:count]',
        'np.sort(np.argsort(-scores, kind="stable")[:count])',
        rules.guesses_are_the_race_in_order,
    ),
]
