"""What somebody has to be told, and when."""

from dataclasses import dataclass

from outrider.actors.executor.supervisor import WorkerState
from outrider.cluster.api.metrics import names as names
from outrider.cluster.api.metrics.exported_names import MODEL, REPLICA
from outrider.cluster.k8s.monitoring.queries import instant, rate, share, total_rate
from outrider.cluster.k8s.objects import Object

WINDOW = "10m"
MAX_IDLE = 0.5
MAX_QUEUE_AGE_S = 30
MAX_ERRORS = 0.01
MAX_RESTARTS = 3
OK = 'status="ok"'
DRAFT = 'role="draft"'
UP = f'state="{WorkerState.UP.value}"'
BY = f"{MODEL}, {REPLICA}"


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule."""

    name: str
    expression: str
    lasting: str
    severity: str
    summary: str
    what_to_do: str

    def rule(self) -> Object:
        """As Prometheus takes it."""
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": self.lasting,
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "description": self.what_to_do},
        }


_drafted = total_rate(names.NUM_DRAFT_TOKENS, WINDOW, by=MODEL)
_acceptance = share(total_rate(names.NUM_ACCEPTED_TOKENS, WINDOW, by=MODEL), _drafted)
_target_busy = total_rate(
    names.WORKER_SECONDS, WINDOW, 'part=~"target_forward|verdict|target_host"', by=BY
)
_rounds = total_rate(names.ROUND_SECONDS, WINDOW, by=BY)
_failed = total_rate(names.HTTP_RESPONSES, WINDOW, 'status=~"5.."', by=MODEL)
_answered = total_rate(names.HTTP_RESPONSES, WINDOW, by=MODEL)

ALERTS = (
    Alert(
        "OutriderNoEngine",
        f"absent({instant(names.ENGINE_STATUS, OK)} == 1)",
        "5m",
        "critical",
        "No replica reports an engine that is ok.",
        "kubectl describe rayservice; the pods' init containers and readiness say what lacks.",
    ),
    Alert(
        "OutriderErrors",
        f"{share(_failed, _answered)} > {MAX_ERRORS}",
        "5m",
        "critical",
        "More than 1 % of the responses of {{ $labels.model_name }} are errors of the server.",
        "The access log has a line for each, with its request id and status.",
    ),
    Alert(
        "OutriderQueueAge",
        f"{instant(names.QUEUE_AGE)} > {MAX_QUEUE_AGE_S}",
        "5m",
        "warning",
        "Sequences wait longer than half a minute in {{ $labels.replica }}.",
        "Raise cluster.max_replicas or engine.kv_tokens, or lower cluster.target_requests.",
    ),
    Alert(
        "OutriderDrafterDown",
        f"{instant(names.WORKER_STATE, DRAFT, UP)} == 0",
        "5m",
        "warning",
        "The draft of {{ $labels.replica }} is not up: answers are right, and slower.",
        "/health with a key names the reason; memory is the usual one.",
    ),
    Alert(
        "OutriderNothingAccepted",
        f"{_acceptance} < 0.01",
        "15m",
        "warning",
        "Nearly no drafted token of {{ $labels.model_name }} is accepted.",
        "The draft does not know this kind of text, or belongs to another model.",
    ),
    Alert(
        "OutriderEverythingAccepted",
        f"{_acceptance} > 0.995",
        "15m",
        "warning",
        "Nearly every drafted token of {{ $labels.model_name }} is accepted.",
        "Is the draft the target itself? Then it costs as much as it saves.",
    ),
    Alert(
        "OutriderTargetIdle",
        f"1 - {share(_target_busy, _rounds)} > {MAX_IDLE}",
        "15m",
        "warning",
        "The target of {{ $labels.replica }} waits for more than half of the time of its rounds.",
        "Compare the parts of a round in the dashboard; try engine.is_colocated or fewer threads.",
    ),
    Alert(
        "OutriderWorkersRestart",
        f"{rate(names.WORKER_RESTARTS, '15m')} * 900 > {MAX_RESTARTS}",
        "1m",
        "warning",
        "The {{ $labels.role }} of {{ $labels.replica }} was started again several times.",
        "Its reason is in /health; out of memory is the usual one.",
    ),
)


def rules() -> Object:
    """All of them, as one group."""
    return {"groups": [{"name": "outrider", "rules": [alert.rule() for alert in ALERTS]}]}
