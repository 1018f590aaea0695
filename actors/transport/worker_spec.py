"""What a worker is built from, wherever it is built."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """All that is needed to build a worker."""

    role: str  # "draft" | "target"
    model: str  # its folder, as the worker will see it
    num_target_ids: int  # ids in the target's vocabulary: a draft proposes no others
    num_tokens: int  # KV rows
    device: str = "auto"
    dtype: str = "auto"
    numerics: str = "auto"  # "auto" | "exact" | "fast"
    num_threads: int = 1
    has_prefix_cache: bool = True
    colocated_draft: str | None = None  # of a target: the draft that shares its process and thread


def thread_environment(num_threads: int) -> dict[str, str]:
    """What must be set before torch is imported: busy waiting on a shared core costs 100 times."""
    return {"OMP_NUM_THREADS": str(num_threads), "OMP_WAIT_POLICY": "PASSIVE"}


def worker_environment(num_threads: int) -> dict[str, str]:
    """Threads that wait without spinning, no progress bars of libraries, no network."""
    quiet = {"TQDM_DISABLE": "1", "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    return {**thread_environment(num_threads), **quiet, "TOKENIZERS_PARALLELISM": "false"}
