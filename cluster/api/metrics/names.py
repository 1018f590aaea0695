"""Every metric of /metrics: its name, kind, labels and help. Dashboards and docs are made from it.

`vllm:` names are those that load tools and dashboards read already, with vLLM's meaning; the others
are our own. All carry the label `model_name` beside their own, and are one replica's. A counter's
name goes out with `_total` behind it.
"""

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    """How a metric behaves."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One family of samples."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()  # beside model_name


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.COUNTER, text, labels)


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.GAUGE, text, labels)


def _histogram(name: str, text: str) -> Metric:
    return Metric(name, MetricKind.HISTOGRAM, text)


# As vLLM's

NUM_DRAFTS = _counter(
    "vllm:spec_decode_num_drafts", "Verifications that had at least one drafted token."
)
NUM_DRAFT_TOKENS = _counter(
    "vllm:spec_decode_num_draft_tokens", "Drafted tokens that were verified."
)
NUM_ACCEPTED_TOKENS = _counter(
    "vllm:spec_decode_num_accepted_tokens", "Drafted tokens that the target accepted."
)
NUM_ACCEPTED_PER_POS = _counter(
    "vllm:spec_decode_num_accepted_tokens_per_pos",
    "Accepted drafted tokens by their position in the draft, from 0.",
    "position",
)
NUM_RUNNING = _gauge("vllm:num_requests_running", "Sequences being decoded.")
NUM_WAITING = _gauge("vllm:num_requests_waiting", "Sequences in the queue.")
KV_USAGE = _gauge(
    "vllm:kv_cache_usage_perc",
    "Share of the target's KV pages that running sequences hold; 1 is all.",
)
PREFIX_CACHE_QUERIES = _counter(
    "vllm:prefix_cache_queries", "Tokens of prompts whose KV was looked for in the prefix cache."
)
PREFIX_CACHE_HITS = _counter(
    "vllm:prefix_cache_hits", "Tokens of prompts whose KV came from the prefix cache."
)
NUM_PREEMPTIONS = _counter(
    "vllm:num_preemptions", "Sequences that gave their KV pages up to others, to go on later."
)
QUEUE_TIME = _histogram(
    "vllm:request_queue_time_seconds", "From a sequence's arrival to its admission, per choice."
)
PROMPT_TOKENS = _counter("vllm:prompt_tokens", "Tokens of the prompts of ended requests.")
GENERATION_TOKENS = _counter("vllm:generation_tokens", "Tokens generated.")
REQUEST_SUCCESS = _counter(
    "vllm:request_success",
    "Choices ended, by why: stop, length, abort (the client left) or error (time was up, too).",
    "finished_reason",
)
TIME_TO_FIRST_TOKEN = _histogram(
    "vllm:time_to_first_token_seconds", "From a request's arrival to its first commit."
)
INTER_TOKEN_LATENCY = _histogram(
    "vllm:inter_token_latency_seconds",
    "Time a token after the first commit; a commit's time is shared by its tokens.",
)
REQUEST_LATENCY = _histogram(
    "vllm:e2e_request_latency_seconds", "From a request's arrival to the end of its response."
)
REQUEST_PROMPT_TOKENS = _histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.")
REQUEST_GENERATION_TOKENS = _histogram(
    "vllm:request_generation_tokens", "Tokens generated for a request, all choices together."
)

# Rounds

ROUND_SECONDS = _counter(
    "outrider:round_seconds",
    "Time inside rounds, by part: schedule, propose, verify, commit; they add up to all of it.",
    "part",
)
WORKER_SECONDS = _counter(
    "outrider:worker_seconds",
    "Time of workers' steps, by part: draft_step, target_forward, verdict, target_host.",
    "part",
)
TRANSPORT_SECONDS = _counter(
    "outrider:transport_seconds", "Time in verify in which the target was at no step."
)
TARGET_IDLE = _gauge(
    "outrider:target_idle_fraction",
    "Share of the time inside rounds that the target waited, since the start.",
)
TARGET_PASSES = _counter("outrider:target_passes", "Forwards of the target, prefill included.")
DRAFT_PASSES = _counter("outrider:draft_passes", "Forwards of the draft.")
VERDICTS = _counter("outrider:verdicts", "Verdicts given: one a sequence and round.")
TOKENS_PER_COMMIT = _histogram(
    "outrider:tokens_per_commit",
    "Tokens that one round added to one sequence: 1 is plain decoding.",
)

# Speculation

DRAFT_TOKENS_COMPUTED = _counter(
    "outrider:draft_tokens_computed", "Tokens that the draft computed, used or not."
)
DRAFT_TOKENS_WASTED = _counter(
    "outrider:draft_tokens_wasted", "Tokens that the draft computed and the target never accepted."
)
TREE_LOOKUPS = _counter(
    "outrider:tree_lookups",
    "Commits looked up in the draft's trees: hit, something stands behind it; late, it was "
    "foreseen and nothing stands behind it yet; or miss.",
    "result",
)
TREE_NODES = _counter(
    "outrider:tree_nodes",
    "Nodes of speculation trees: offered, judged by the target, accepted; by who offered them.",
    "drafter",
    "result",
)
PROMISED_TOKENS = _counter(
    "outrider:promised_tokens",
    "Proposed tokens that should have been accepted by their chances, where those are known; "
    "beside vllm:spec_decode_num_accepted_tokens it tells how true they are.",
)
NODE_PRICE = _gauge(
    "outrider:node_price",
    "Tokens that one more node in the target's forward cost in the last round that was priced.",
)
DRAFT_WAIT_SECONDS = _counter(
    "outrider:draft_wait_seconds",
    "Time in propose in which rounds waited for steps of the draft that were worth it.",
)
DRAFT_CHOICE = _gauge(
    "outrider:draft_choice", "1 for why the last round drafted as far as it did.", "reason"
)
ROUNDS_BY_REASON = _counter(
    "outrider:rounds_by_reason", "Rounds by why they drafted as far as they did.", "reason"
)
DRAFT_STOPPED = _counter(
    "outrider:draft_stopped", "Sequences that the draft stopped to follow, by why.", "reason"
)

# Workers and the front

QUEUE_AGE = _gauge(
    "outrider:queue_age_seconds", "How long the oldest sequence in the queue waits; 0 without one."
)
ENGINE_STATUS = _gauge(
    "outrider:engine_status", "1 for the state it is in: ok, degraded, failed or absent.", "status"
)
WORKER_STATE = _gauge("outrider:worker_state", "1 for the state a worker is in.", "role", "state")
WORKER_RESTARTS = _counter("outrider:worker_restarts", "Workers started again.", "role")
WORKER_DEATHS = _counter("outrider:worker_deaths", "Workers whose connection ended.", "role")
WORKER_HANGS = _counter("outrider:worker_hangs", "Workers that missed their deadline.", "role")
WORKER_PAUSE = _gauge(
    "outrider:worker_pause_seconds", "From a worker's last loss to its successor.", "role"
)
HTTP_RESPONSES = _counter(
    "outrider:http_responses",
    "Responses, by route, method and status; 499 where the client left first.",
    "route",
    "method",
    "status",
)
HTTP_IN_PROGRESS = _gauge("outrider:http_in_progress", "POST requests being answered.")
DRAINING = _gauge("outrider:draining", "1 once the server takes no more requests.")
INFO = _gauge(
    "outrider:info",
    "1, with what is served; steps: how a GPU runs them, above all what it could not capture.",
    *("draft", "verification", "numerics", "steps", "fingerprint"),
)

ALL = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
