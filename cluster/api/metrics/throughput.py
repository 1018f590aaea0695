"""How busy a server is, in a line now and then, as vLLM's log has it: from its own /metrics."""

from collections import Counter
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

GENERATED, PROMPTS = "vllm:generation_tokens_total", "vllm:prompt_tokens_total"
DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
USAGE = "vllm:kv_cache_usage_perc"
READ = frozenset((GENERATED, PROMPTS, DRAFTED, ACCEPTED, RUNNING, WAITING, USAGE))


@dataclass(frozen=True, slots=True)
class Reading:
    """What /metrics said, and when."""

    at_s: float
    values: Counter[str]  # by metric, all labels together


def reading(metrics: str, at_s: float) -> Reading:
    """Of the text of /metrics."""
    values = Counter[str]()
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name in READ:
                values[sample.name] += sample.value  # type: ignore[assignment]
    return Reading(at_s, values)


def throughput(before: Reading, now: Reading) -> str:
    """The line; empty while nothing was made and nobody waits."""
    seconds = now.at_s - before.at_s
    made = {name: now.values[name] - before.values[name] for name in READ}
    if seconds <= 0 or made[GENERATED] < 0:  # another replica's, or begun anew
        return ""
    if not (made[GENERATED] or now.values[RUNNING] or now.values[WAITING]):
        return ""
    parts = [
        f"{made[GENERATED] / seconds:.1f} tokens/s generated",
        f"{made[PROMPTS] / seconds:.1f} of prompts",
        f"{now.values[RUNNING]:.0f} running, {now.values[WAITING]:.0f} waiting",
        f"{now.values[USAGE]:.0%} of the KV pool in use",
    ]
    if made[DRAFTED]:
        parts.append(f"{made[ACCEPTED] / made[DRAFTED]:.0%} of drafted tokens accepted")
    return "; ".join(parts)
