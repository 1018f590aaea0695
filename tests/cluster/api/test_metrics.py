"""/metrics: the names that load tools read, the figures that were so, and every name described."""

import asyncio
from typing import Any

from cluster.asgi import ask
from cluster.toy_engine import ToyEngine
from prometheus_client.parser import text_string_to_metric_families

from outrider.actors.scheduling.request import OutputDelta
from outrider.actors.sizing.found import Found
from outrider.cluster.api.app import create_app
from outrider.cluster.api.metrics import names
from outrider.cluster.api.metrics.names import MetricKind
from outrider.cluster.api.middleware.observations import Histogram, Observations
from outrider.cluster.api.service import Service

COMPLETIONS = "/v1/completions"
PROMPT = {"model": "toy", "prompt": "hi", "seed": 1, "max_tokens": 5}


async def samples(app: Any) -> dict[str, float]:
    """Every sample by its name and its labels beside the model's."""
    reply = await ask(app, "/metrics", method="GET")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain")
    found = {}
    for family in text_string_to_metric_families(reply.body.decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("model_name") == "toy"
            found["/".join((sample.name, *labels.values()))] = sample.value
    return found


async def test_what_load_tools_read(service: Service) -> None:
    app = create_app(service)
    before = await samples(app)
    assert before["vllm:spec_decode_num_drafts_total"] == 0
    await ask(
        app, COMPLETIONS, PROMPT
    )  # "de", "fg", "h": each with 4 drafted, the last with none accepted
    await ask(app, COMPLETIONS, PROMPT | {"stream": True})
    found = await samples(app)
    assert found["vllm:spec_decode_num_drafts_total"] == 6
    assert found["vllm:spec_decode_num_draft_tokens_total"] == 24
    assert found["vllm:spec_decode_num_accepted_tokens_total"] == 4
    assert found["vllm:spec_decode_num_accepted_tokens_per_pos_total/0"] == 4
    assert found["vllm:prompt_tokens_total"] == 4
    assert found["vllm:generation_tokens_total"] == 10
    assert found["vllm:request_success_total/length"] == 2
    assert found["vllm:time_to_first_token_seconds_count"] == 2
    assert found["vllm:request_queue_time_seconds_sum"] == 2 * 0.125
    assert found["vllm:e2e_request_latency_seconds_count"] == 2
    assert found["vllm:inter_token_latency_seconds_count"] == 6  # all tokens but the first commits'
    assert found["vllm:request_generation_tokens_bucket/5.0"] == 2
    assert found["vllm:request_generation_tokens_bucket/2.0"] == 0
    assert found["outrider:tokens_per_commit_bucket/1.0"] == 2
    assert found["outrider:tokens_per_commit_sum"] == 10
    assert found[f"outrider:http_responses_total/POST/{COMPLETIONS}/200"] == 2


async def test_what_the_engine_tells(service: Service, engine: ToyEngine) -> None:
    statistics, app = engine.statistics, create_app(service)
    statistics.add(schedule_s=1, propose_s=2, verify_s=4, commit_s=1, target_forward_s=3)
    statistics.add(num_promised=3.5, draft_wait_s=0.25)
    statistics.set(price=0.125, reason="slower")
    statistics.add(num_prompt_tokens=30, num_cached_tokens=20, num_preempted=2)
    statistics.add(verdict_s=0.5, draft_step_s=1.5, num_draft_fed=9, num_accepted=4, num_rows=5)
    for what, which, count in [
        ("foreseen", "hit", 7),
        ("foreseen", "late", 1),
        ("nodes_judged", "ngram", 11),
        ("k_reason", "priced", 12),
        ("draft_stopped", "context", 2),
    ]:
        statistics.count(what, which, count)
    engine.num_waiting = 3
    how = "as they are: 'LlamaModel' cannot be captured"
    engine.info.sizes += (Found("steps", how, "its .item() asks the device"),)
    found = await samples(app)
    assert found[f"outrider:info/toy/toy-1/exact/{how}/coupled"] == 1
    parts = ("schedule", "propose", "verify", "commit")
    assert [found[f"outrider:round_seconds_total/{part}"] for part in parts] == [1, 2, 4, 1]
    assert found["outrider:worker_seconds_total/draft_step"] == 1.5
    assert found["outrider:transport_seconds_total"] == 0.5
    assert found["outrider:target_idle_fraction"] == 1 - 3.5 / 8
    assert found["outrider:draft_tokens_wasted_total"] == 5
    assert found["outrider:verdicts_total"] == 5
    assert found["outrider:promised_tokens_total"] == 3.5
    assert found["outrider:node_price"] == 0.125
    assert found["outrider:draft_wait_seconds_total"] == 0.25
    assert found["outrider:draft_choice/slower"] == 1
    assert sum(v for name, v in found.items() if "draft_choice" in name) == 1
    assert found["outrider:tree_lookups_total/hit"] == 7
    assert found["outrider:tree_lookups_total/late"] == 1
    assert found["outrider:tree_nodes_total/ngram/judged"] == 11
    assert found["outrider:rounds_by_reason_total/priced"] == 12
    assert found["outrider:draft_stopped_total/context"] == 2
    assert found["vllm:num_requests_waiting"] == 3
    assert found["vllm:kv_cache_usage_perc"] == 0.25
    assert found["vllm:prefix_cache_queries_total"] == 30
    assert found["vllm:prefix_cache_hits_total"] == 20
    assert found["vllm:num_preemptions_total"] == 2
    assert found["outrider:queue_age_seconds"] == 1.5
    assert found["outrider:worker_restarts_total/target"] == 2
    states = {name: value for name, value in found.items() if "worker_state" in name}
    assert len(states) == 4
    assert [name for name, value in states.items() if value] == ["outrider:worker_state/target/up"]
    engine.status = "degraded"
    found = await samples(app)
    assert found["outrider:engine_status/degraded"] == 1
    assert sum(v for name, v in found.items() if "engine_status" in name) == 1


async def test_without_an_engine_the_rest_is_there(service: Service) -> None:
    service.engine = None
    found = await samples(create_app(service))
    assert found["outrider:engine_status/absent"] == 1
    assert "vllm:num_requests_running" not in found


async def test_every_name_goes_out_as_it_is_described(service: Service, engine: ToyEngine) -> None:
    app = create_app(service)
    await ask(app, COMPLETIONS, PROMPT)
    for what in ("foreseen", "nodes_offered", "k_reason", "draft_stopped"):
        engine.statistics.count(what, "1")
    text = (await ask(app, "/metrics", method="GET")).body.decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for metric in names.ALL:
        family = families.pop(metric.name)
        assert (family.type, family.documentation) == (metric.kind.value, metric.help)
        assert family.samples, metric
        labels = set(family.samples[0].labels) - (
            {"le"} if metric.kind is MetricKind.HISTOGRAM else set()
        )
        assert labels == {"model_name", *metric.labels}
    assert not families


async def test_two_applications_do_not_share_their_counts(service: Service) -> None:
    one, other = create_app(service), create_app(service)
    await ask(one, COMPLETIONS, PROMPT)
    assert (await samples(one))["vllm:generation_tokens_total"] == 5
    assert (await samples(other))["vllm:generation_tokens_total"] == 0


async def test_what_did_not_succeed_is_counted_as_that(service: Service, engine: ToyEngine) -> None:
    app = create_app(service)
    engine.delay_s = 0.01
    await ask(app, COMPLETIONS, PROMPT | {"stream": True}, leaves_after=1)
    engine.failure = RuntimeError("a bug")
    await ask(app, COMPLETIONS, PROMPT)
    await ask(app, COMPLETIONS, PROMPT | {"top_p": 2})
    await ask(app, "/v1/nowhere", method="BREW")
    await asyncio.sleep(0)
    found = await samples(app)
    assert found["vllm:request_success_total/abort"] == 1
    assert found["vllm:request_success_total/error"] == 1
    assert found[f"outrider:http_responses_total/POST/{COMPLETIONS}/500"] == 1
    assert found[f"outrider:http_responses_total/POST/{COMPLETIONS}/400"] == 1
    assert found["outrider:http_responses_total/other/none/404"] == 1


def test_a_histogram_counts_up_to_each_bound() -> None:
    histogram = Histogram((1, 2.5))
    histogram.observe(1)
    histogram.observe(2, count=3)
    histogram.observe(9)
    assert histogram.buckets == [("1.0", 1), ("2.5", 4), ("+Inf", 5)]
    assert histogram.sum == 1 + 6 + 9


def test_a_commit_of_nothing_is_no_token() -> None:
    seen = Observations()
    seen.commit(OutputDelta((), (), ""), 0.5)
    assert (seen.num_tokens, seen.tokens_per_commit.sum, seen.inter_token_s.sum) == (0, 0, 0)
