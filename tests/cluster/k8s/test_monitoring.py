"""Dashboard and alerts are PromQL, and name series, labels and values that there are."""

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest

from outrider.cluster.api.metrics import names
from outrider.cluster.api.metrics.exported_names import MODEL, REPLICA, exported
from outrider.cluster.k8s.monitoring.alerts import ALERTS, rules
from outrider.cluster.k8s.monitoring.dashboard import PANELS, WIDTH, dashboard

SERIES = {name: metric for metric in names.ALL for name in exported(metric)}
SHARED = {MODEL, REPLICA}  # on every series
ASKED_FOR = {  # what an operator wants to see
    "http_responses", "time_to_first_token", "inter_token_latency", "num_accepted_tokens",
    "tokens_per_commit", "round_seconds", "tree_lookups", "tree_nodes", "worker_state",
    "kv_cache_usage", "num_requests_waiting", "queue_age",
}  # fmt: skip
TO_BE_TOLD = {  # of the draft, of acceptance 0 and 1, of idleness, of the queue, of errors
    "OutriderDrafterDown", "OutriderNothingAccepted", "OutriderEverythingAccepted",
    "OutriderTargetIdle", "OutriderQueueAge", "OutriderErrors",
}  # fmt: skip


def expressions() -> dict[str, str]:
    found = {f"alert {alert.name}": alert.expression for alert in ALERTS}
    for panel in PANELS:
        found |= {f"{panel.title}: {word}": line for word, line in panel.lines.items()}
    return found


def parts(expression: Any) -> Iterator[Any]:
    """Every node of a parsed expression."""
    yield expression
    for name in ("expr", "lhs", "rhs", "param", "vector_selector"):
        inner = getattr(expression, name, None)
        if inner is not None and not isinstance(inner, str):
            yield from parts(inner)
    for inner in getattr(expression, "args", None) or []:
        yield from parts(inner)


def parsed(text: str) -> Any:
    return promql_parser.parse(text.replace("$__rate_interval", "5m"))


def selectors(text: str) -> Iterator[tuple[str, list[Any]]]:
    for part in parts(parsed(text)):
        if isinstance(part, promql_parser.VectorSelector):
            yield part.name, list(part.matchers.matchers)


def unknown(text: str) -> list[str]:
    """Series and labels that nobody exports."""
    found = []
    for name, matchers in selectors(text):
        metric = SERIES.get(name)
        if metric is None:
            found.append(name)
            continue
        labels = SHARED | set(metric.labels)
        found += [each.name for each in matchers if each.name not in labels]
    return found


@pytest.mark.parametrize("where", expressions())
def test_expressions_name_what_there_is(where: str) -> None:
    text = expressions()[where]
    assert list(selectors(text)), "it reads nothing"
    assert unknown(text) == []


@pytest.mark.parametrize("where", expressions())
def test_results_keep_the_labels_that_are_shown(where: str) -> None:
    text, word = expressions()[where], where.partition(": ")[2]
    shown = set(re.findall(r"\{\{(\w+)\}\}", word))
    by = re.findall(r"sum by \(([^)]*)\)", text)
    kept = [set(re.split(r", *", each)) for each in by] or [set()]
    assert all(shown <= each for each in kept[:1])


def test_a_wrong_name_is_found() -> None:
    text = expressions()["Acceptance: of all drafted"]
    assert unknown(text.replace("_tokens_total", "_token_total"))
    assert unknown(text.replace("model_name", "model"))
    with pytest.raises(ValueError, match="rat"):
        parsed(text.replace("rate(", "rat("))


def test_what_was_asked_for_is_there() -> None:
    read = {name for text in expressions().values() for name, _ in selectors(text)}
    for word in ASKED_FOR:
        assert any(word in name for name in read), word
    assert {alert.name for alert in ALERTS} >= TO_BE_TOLD


def test_values_of_labels_are_real() -> None:
    """A matcher of a value that is never exported would match nothing, for ever."""
    from outrider.actors.executor.supervisor import WorkerState
    from outrider.cluster.api.metrics.collector import PARTS, STATUSES

    known = {
        "state": {state.value for state in WorkerState},
        "status": {*STATUSES, "5.."},
        "role": {"draft", "target"},
        "part": {*PARTS, "draft_step", "target_forward", "verdict", "target_host"},
    }
    for text in expressions().values():
        for _, matchers in selectors(text):
            for each in matchers:
                if each.name in known:
                    assert set(each.value.split("|")) <= known[each.name], text


def test_alerts_are_complete() -> None:
    [group] = rules()["groups"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(ALERTS)
    for alert in ALERTS:
        assert alert.severity in {"warning", "critical"}
        assert promql_parser.parse_duration(alert.lasting).total_seconds() >= 60
        for label in re.findall(r"\$labels\.(\w+)", alert.summary + alert.what_to_do):
            assert label in SHARED | {"role"}
            assert label in alert.expression or "sum" not in alert.expression


def test_the_dashboard_is_whole() -> None:
    found = json.loads(json.dumps(dashboard()))
    assert len(found["panels"]) == len(PANELS) == len({each["id"] for each in found["panels"]})
    places = {(each["gridPos"]["x"], each["gridPos"]["y"]) for each in found["panels"]}
    assert len(places) == len(PANELS)
    assert all(each["gridPos"]["x"] + WIDTH <= 24 for each in found["panels"])
    named = {each["name"] for each in found["templating"]["list"]}
    for panel in found["panels"]:
        for target in panel["targets"]:
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= named
