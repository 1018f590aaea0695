"""The dashboard for Grafana: what a replica does and why it is as fast as it is."""

from dataclasses import dataclass

from outrider.cluster.api.metrics import names as names
from outrider.cluster.api.metrics.exported_names import MODEL, REPLICA, exported
from outrider.cluster.k8s.monitoring.queries import instant, mean, quantile, share, total_rate
from outrider.cluster.k8s.objects import Object

WINDOW = "$__rate_interval"
SELECTED = (f'{MODEL}=~"$model"', f'{REPLICA}=~"$replica"')
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT, COLUMNS = 8, 7, 3


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture: expressions by what they are called."""

    title: str
    unit: str
    lines: dict[str, str]
    help: str
    is_stacked: bool = False


def _quantiles(metric: names.Metric) -> dict[str, str]:
    shares = {"half": 0.5, "nine of ten": 0.9, "99 of 100": 0.99}
    return {word: quantile(share, metric, WINDOW, *SELECTED) for word, share in shares.items()}


def _rate(metric: names.Metric, by: str = "") -> str:
    return total_rate(metric, WINDOW, *SELECTED, by=by)


_drafted = _rate(names.NUM_DRAFT_TOKENS)
_looked_up = _rate(names.TREE_LOOKUPS)
_busy = total_rate(
    names.WORKER_SECONDS,
    WINDOW,
    *SELECTED,
    'part=~"target_forward|verdict|target_host"',
    by=REPLICA,
)


def _now(metric: names.Metric, by: str) -> str:
    return f"sum by ({by}) ({instant(metric, *SELECTED)})"


PANELS = (
    Panel(
        "Responses",
        "reqps",
        {"{{status}}": _rate(names.HTTP_RESPONSES, "status")},
        names.HTTP_RESPONSES.help,
    ),
    Panel(
        "Time to the first token",
        "s",
        _quantiles(names.TIME_TO_FIRST_TOKEN),
        names.TIME_TO_FIRST_TOKEN.help,
    ),
    Panel(
        "Time between tokens",
        "s",
        _quantiles(names.INTER_TOKEN_LATENCY),
        names.INTER_TOKEN_LATENCY.help,
    ),
    Panel(
        "Tokens",
        "short",
        {
            "generated": _rate(names.GENERATION_TOKENS),
            "of prompts": _rate(names.PROMPT_TOKENS),
        },
        "Each second.",
    ),
    Panel(
        "Tokens a round and sequence",
        "short",
        {"{{replica}}": mean(names.TOKENS_PER_COMMIT, WINDOW, *SELECTED, by=REPLICA)},
        names.TOKENS_PER_COMMIT.help,
    ),
    Panel(
        "Acceptance",
        "percentunit",
        {"of all drafted": share(_rate(names.NUM_ACCEPTED_TOKENS), _drafted)},
        "Drafted tokens that the target accepted, of those it judged.",
    ),
    Panel(
        "Accepted by position",
        "short",
        {"{{position}}": _rate(names.NUM_ACCEPTED_PER_POS, "position")},
        names.NUM_ACCEPTED_PER_POS.help,
    ),
    Panel(
        "Foreseen",
        "percentunit",
        {
            "{{result}}": f"{_rate(names.TREE_LOOKUPS, 'result')} / ignoring (result) "
            f"group_left () ({_looked_up} > 0)"
        },
        names.TREE_LOOKUPS.help,
        is_stacked=True,
    ),
    Panel(
        "Drafted",
        "short",
        {"a sequence and round": share(_drafted, _rate(names.VERDICTS))},
        "Drafted tokens that the target judged, for each verdict.",
    ),
    Panel(
        "Nodes of trees",
        "short",
        {"{{drafter}}, {{result}}": _rate(names.TREE_NODES, "drafter, result")},
        names.TREE_NODES.help,
    ),
    Panel(
        "Accepted, of what chances promised",
        "percentunit",
        {"accepted": share(_rate(names.NUM_ACCEPTED_TOKENS), _rate(names.PROMISED_TOKENS))},
        "1 where the chances of what is proposed are true.",
    ),
    Panel(
        "Price of a node",
        "short",
        {"{{replica}}": _now(names.NODE_PRICE, REPLICA)},
        names.NODE_PRICE.help,
    ),
    Panel(
        "Why so much is drafted",
        "short",
        {"{{reason}}": _rate(names.ROUNDS_BY_REASON, "reason")},
        names.ROUNDS_BY_REASON.help,
        is_stacked=True,
    ),
    Panel(
        "The target waits",
        "percentunit",
        {"{{replica}}": f"1 - {share(_busy, _rate(names.ROUND_SECONDS, REPLICA))}"},
        "Share of the time inside rounds.",
    ),
    Panel(
        "Parts of a round",
        "s",
        {"{{part}}": _rate(names.ROUND_SECONDS, "part")},
        names.ROUND_SECONDS.help,
        is_stacked=True,
    ),
    Panel(
        "Workers",
        "short",
        {"{{role}} {{state}}": _now(names.WORKER_STATE, "role, state")},
        names.WORKER_STATE.help,
        is_stacked=True,
    ),
    Panel(
        "Sequences",
        "short",
        {
            "decoded": _now(names.NUM_RUNNING, MODEL),
            "in the queue": _now(names.NUM_WAITING, MODEL),
        },
        "Now, in all replicas together.",
    ),
    Panel(
        "Age of the queue",
        "s",
        {"{{replica}}": _now(names.QUEUE_AGE, REPLICA)},
        names.QUEUE_AGE.help,
    ),
    Panel(
        "Pages of the cache",
        "percentunit",
        {"{{replica}}": _now(names.KV_USAGE, REPLICA)},
        names.KV_USAGE.help,
    ),
    Panel(
        "Prompts found in the cache",
        "percentunit",
        {
            "of their tokens": share(
                _rate(names.PREFIX_CACHE_HITS), _rate(names.PREFIX_CACHE_QUERIES)
            )
        },
        names.PREFIX_CACHE_HITS.help,
    ),
    Panel(
        "Replicas by state",
        "short",
        {"{{status}}": _now(names.ENGINE_STATUS, "status")},
        names.ENGINE_STATUS.help,
        is_stacked=True,
    ),
)


def dashboard() -> Object:
    """As Grafana imports it."""
    return {
        "title": "Outrider",
        "uid": "outrider",
        "tags": ["outrider"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [_source(), _variable("model", MODEL), _variable("replica", REPLICA)]
        },
        "panels": [_drawn(index, panel) for index, panel in enumerate(PANELS)],
    }


def _drawn(index: int, panel: Panel) -> Object:
    row, column = divmod(index, COLUMNS)
    stacking = {"mode": "normal" if panel.is_stacked else "none"}
    return {
        "id": index + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.help,
        "datasource": SOURCE,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": {"stacking": stacking}},
            "overrides": [],
        },
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": SOURCE,
                "expr": line,
                "legendFormat": word,
            }
            for number, (word, line) in enumerate(panel.lines.items())
        ],
    }


def _source() -> Object:
    return {"name": "datasource", "type": "datasource", "query": "prometheus"}


def _variable(name: str, label: str) -> Object:
    series = exported(names.ENGINE_STATUS)[0]
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": f"label_values({series}, {label})",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }
