"""Planted bugs in the kernels, each with the check that is there to catch it."""

from collections.abc import Callable
from dataclasses import dataclass

from kernels.cuda import checks


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug: `old` becomes `new` in one place of each source that holds it."""

    name: str
    old: str
    new: str
    caught_by: Callable[[Callable[[str], str]], None]

    def edit(self, code: str) -> str:
        assert code.count(self.old) <= 1, f"{self.name}: {code.count(self.old)} places"
        return code.replace(self.old, self.new)


MUTANTS = [
    Mutant(
        "no barrier between a tile's peaks and their use",
        "key_of(strip_peak);\n  }\n  __syncthreads();",
        "key_of(strip_peak);\n  }",
        checks.bytes_hold_under_every_schedule,
    ),
    Mutant(
        "no barrier before a tile's sums are added",
        "    winners[strip] = winner;\n  }\n  __syncthreads();",
        "    winners[strip] = winner;\n  }",
        checks.bytes_hold_under_every_schedule,
    ),
    Mutant(
        "no barrier between the rows' ends and their use",
        "it.end : GOES_ON;\n    __syncthreads();",
        "it.end : GOES_ON;",
        checks.bytes_hold_under_every_schedule,
    ),
    Mutant(
        "a search's counters are reset while others read them",
        "sums + i * MAX_STRIPS);\n    }\n    __syncthreads();",
        "sums + i * MAX_STRIPS);\n    }",
        checks.bytes_hold_under_every_schedule,
    ),
    Mutant(
        "a barrier in a branch",
        "  __syncthreads();\n  const bool is_it =",
        "  if (threadIdx.x < 32) __syncthreads();\n  const bool is_it =",
        checks.bytes_are_the_contracts,
    ),
    Mutant(
        "a shuffle in a branch",
        "  const float sum = strip_sum(z);",
        "  const float sum = lane < 16 ? strip_sum(z) : 0.0f;",
        checks.bytes_are_the_contracts,
    ),
    Mutant(
        "no fence before a block counts itself",
        "    __threadfence();\n    arrived",
        "    arrived",
        checks.thread_sanitizer_is_silent,
    ),
    Mutant(
        "a block counts itself before all its threads have written",
        "  __syncthreads();  // thread 0 will tell",
        "  // thread 0 will tell",
        checks.thread_sanitizer_is_silent,
    ),
    Mutant(
        "two blocks write one word",
        "  *out = {peak,",
        "  out[-(int)blockIdx.x - (int)(blockIdx.y * gridDim.x)].winner = id;\n  *out = {peak,",
        checks.thread_sanitizer_is_silent,
    ),
    Mutant(
        "the counter is not reset",
        "atomicInc(counter, num_blocks - 1)",
        "atomicAdd(counter, 1u)",
        checks.a_replay_gives_the_same,
    ),
    Mutant(
        "the last tile reads past its row",
        "first + e < width ? float_of",
        "first + e <= width ? float_of",
        checks.address_sanitizer_is_silent,
    ),
    Mutant(
        "16-byte loads from a misaligned row",
        " && ((u64)(row + first) & 15) == 0",
        "",
        checks.address_sanitizer_is_silent,
    ),
    Mutant(
        "shared memory one element short",
        "SMEM(float, raw_sums, STRIPS);",
        "SMEM(float, raw_sums, STRIPS - 1);",
        checks.address_sanitizer_is_silent,
    ),
    Mutant(
        "log-probs are cleared past their end",
        "j = threadIdx.x; j < num_logprobs;",
        "j = threadIdx.x; j <= num_logprobs;",
        checks.address_sanitizer_is_silent,
    ),
    Mutant(
        "accepts on equality: <= for <",
        "__float_as_uint(mul(u, it.own)) < __float_as_uint(target)",
        "__float_as_uint(mul(u, it.own)) <= __float_as_uint(target)",
        checks.zero_target_is_never_accepted,
    ),
    Mutant(
        "a biased uniform: never above one half",
        "(float)(bits >> 8), 5.96",
        "(float)(bits >> 9), 5.96",
        checks.recovered_tokens_follow_the_target,
    ),
    Mutant(
        "recovered token from the target row",
        "  const float left = sub(target, draft);",
        "  const float left = target;",
        checks.recovered_tokens_follow_the_target,
    ),
    Mutant(
        "covered ids run free as well",
        "contest.excluded = draft.covered(strip_first(blockIdx.x, threadIdx.x >> 5));",
        "contest.excluded = 0;",
        checks.recovered_tokens_follow_the_target,
    ),
    Mutant(
        "bonus from the wrong row",
        "  const int r = item.first_row + j;\n  Judged it",
        "  const int r = item.first_row + j - (j && j == item.num_drafted);\n  Judged it",
        checks.bytes_are_the_contracts,
    ),
    Mutant(
        "one noise for all rows",
        "(u32)(position + depth)",
        "(u32)position",
        checks.bytes_are_the_contracts,
    ),
    Mutant(
        "ties to the highest id",
        "e = PER_THREAD - 1; e >= 0; e--",
        "e = 0; e < PER_THREAD; e++",
        checks.bytes_are_the_contracts,
    ),
    Mutant(
        "log-probs of the filtered row",
        "!item.is_plain() || ",
        "",
        checks.bytes_are_the_contracts,
    ),
    Mutant(
        "ties dropped at the cut",
        "key_of(scaled) < cut.key",
        "key_of(scaled) <= cut.key",
        checks.bytes_are_the_contracts,
    ),
    Mutant(
        "too many told to be hopeless",
        "LANE_STEP * 0.99998f",
        "LANE_STEP * 2.0f",
        checks.bytes_are_the_contracts,
    ),
    Mutant(
        "more ids in the support than top_m",
        "min(equal, room)",
        "equal",
        checks.bytes_are_the_contracts,
    ),
    Mutant(
        "a product and a sum rounded once",
        "add(mul(logit, inverse), 0.0f)",
        "fma32(logit, inverse, -0.0f)",
        checks.bytes_are_the_contracts,
    ),
    Mutant(
        "the rejected sibling stays in the draft's mass",
        "      if (i == at) probs[i] = 0.0f;\n",
        "",
        checks.siblings_leave_what_they_should,
    ),
    Mutant(
        "the draft's mass is not scaled to what is left",
        "mul(probs[at], ratio)",
        "probs[at]",
        checks.siblings_leave_what_they_should,
    ),
    Mutant(
        "a tree's rows draw with the root's noise",
        "rows[blockIdx.y].depth",
        "0",
        checks.siblings_leave_what_they_should,
    ),
]
