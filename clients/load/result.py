"""A measurement as JSON: the names of `vllm bench serve` where it has one, ours beside them.

Times are as vLLM's: milliseconds where a name ends with _ms, else seconds. Unlike there `itls` has
one value a token (chunks are in `chunk_gaps`), what was not measured is null, and percentiles are
null rather than 0 without values.
"""

import math
from collections.abc import Sequence
from typing import Any

from outrider.clients.load.cautions import cautions
from outrider.clients.load.figures.distribution import PERCENTILES, Distribution
from outrider.clients.load.figures.speculation import DraftStats
from outrider.clients.load.figures.summary import Summary
from outrider.clients.load.measurement import Measurement
from outrider.clients.load.prompt_request import Endpoint
from outrider.clients.load.record import RequestRecord

SCHEMA = "outrider.bench.serve/1"
DIGITS = 6  # of seconds: microseconds
MEASURES = ("ttft", "tpot", "itl", "e2el", "chunk_gap", "client_queue_time")


def result_of(measurement: Measurement, command: str) -> dict[str, Any]:
    """Everything measured, and what it was measured with. Holds no key and no header's value."""
    summary = measurement.summary
    result = {"schema": SCHEMA, "command": command, **_setting(measurement), **_totals(summary)}
    for name in MEASURES:
        result |= _statistics(name, summary.latencies[name])
    for speculation in summary.speculations[:1]:
        result |= _speculation(speculation)
    result["generator"] = _generator(summary)
    result["cautions"] = cautions(measurement)
    return result | _details(summary.records)


def _setting(measurement: Measurement) -> dict[str, Any]:
    """What was asked of whom, and when."""
    spec, plan = measurement.spec, measurement.spec.plan
    backend = "openai" if spec.endpoint is Endpoint.COMPLETIONS else "openai-chat"
    is_endless = plan.rate is None or math.isinf(plan.rate)
    return {
        "date": measurement.began_at.strftime("%Y%m%d-%H%M%S"),
        "backend": backend,
        "endpoint_type": backend,
        "base_url": spec.connection.base_url,
        "model_id": measurement.model,
        "tokenizer_id": None,  # the server counts
        "system_fingerprint": measurement.fingerprint,
        "prompts": spec.prompts.described,
        "num_prompts": plan.num_requests,
        "duration_limit": plan.duration_s,
        "request_rate": "inf" if is_endless else plan.rate,
        "burstiness": plan.burstiness,
        "max_concurrency": plan.concurrency,
        "is_closed_loop": plan.rate is None,
        "seed": plan.seed,
        "num_warmups": spec.num_warmups,
        "request_body": dict(measurement.body),
        "refusals": list(measurement.finding.refusals),
    }


def _totals(summary: Summary) -> dict[str, Any]:
    num_input, num_output = summary.num_input_tokens, summary.num_output_tokens
    good = summary.a_second(summary.num_good) if summary.objectives_ms else None
    return {
        "duration": summary.run.duration_s,
        "completed": len(summary.completed),
        "failed": summary.failures.total(),
        "interrupted": summary.num_interrupted,
        "failures_by_kind": dict(summary.failures),
        "total_input_tokens": num_input,
        "total_cached_input_tokens": summary.num_cached_tokens,
        "total_output_tokens": num_output,
        "total_output_chunks": summary.num_chunks,
        "tokens_counted_by": dict(summary.counted_by),
        "request_throughput": summary.a_second(len(summary.completed)),
        "request_goodput": good,
        "goodput_objectives_ms": dict(summary.objectives_ms),
        "output_throughput": summary.a_second(num_output),
        "total_token_throughput": (
            None if num_input is None else summary.a_second(num_input + num_output)
        ),
        "max_output_tokens_per_s": summary.most_tokens_a_second,
        "max_concurrent_requests": summary.most_open,
    }


def _statistics(name: str, values: Distribution | None) -> dict[str, float | None]:
    """Milliseconds, under vLLM's names."""
    names = ["mean", "median", "std", *(f"p{percent}" for percent in PERCENTILES)]
    if values is None:
        return {f"{each}_{name}_ms": None for each in names}
    figures = [values.mean, values.percentile(50), values.std]
    figures += map(values.percentile, PERCENTILES)
    return {f"{each}_{name}_ms": figure for each, figure in zip(names, figures, strict=True)}


def _speculation(told: DraftStats) -> dict[str, Any]:
    return {
        "spec_decode_source": told.source,
        "spec_decode_acceptance_rate": told.acceptance_rate * 100,  # per cent, as vLLM has it
        "spec_decode_acceptance_length": told.acceptance_length,
        "spec_decode_num_drafts": told.num_steps,
        "spec_decode_draft_tokens": told.num_drafted,
        "spec_decode_accepted_tokens": told.num_accepted,
        "spec_decode_per_position_acceptance_rates": list(told.by_position),
        "spec_decode_tokens_per_round": told.tokens_per_round,
        "spec_decode_acceptance_histogram": list(told.histogram),
    }


def _generator(summary: Summary) -> dict[str, float | None]:
    """How well the generator itself did."""
    return {
        **_statistics("lateness", summary.latencies["lateness"]),
        **_statistics("timer_lag", summary.latencies["timer_lag"]),
        "cpu_share": summary.cpu_share,
    }


def _details(records: Sequence[RequestRecord]) -> dict[str, Any]:
    """By request, in the order in which they were due."""

    def seconds(values: Sequence[float]) -> list[float]:
        return [round(value, DIGITS) for value in values]

    return {
        "input_lens": [record.num_prompt_tokens for record in records],
        "output_lens": [record.num_output_tokens for record in records],
        "start_times": seconds([record.sent_s for record in records]),
        "due_times": seconds([record.due_s for record in records]),
        "queue_times": seconds([record.queue_s for record in records]),
        "ttfts": [round(r.ttft_s, DIGITS) if r.chunks else None for r in records],
        "latencies": [round(r.e2el_s, DIGITS) if r.chunks else None for r in records],
        "itls": [seconds(record.itls_s) for record in records],
        "chunk_gaps": [seconds(record.chunk_gaps_s) for record in records],
        "errors": [_error(record) for record in records],
        "finish_reasons": [record.finish_reason for record in records],
    }


def _error(record: RequestRecord) -> str:
    """Empty for none, as vLLM has it."""
    return f"{record.failure.kind}: {record.failure.message}" if record.failure else ""
