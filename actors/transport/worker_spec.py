"""What a worker is built from, wherever it is built."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """All that is needed to build a worker."""

    role: str  # "draft" | "target"
    model: str  # its folder, as the worker will see it
    num_target_ids: int  # width of the target's logits: a draft proposes no id beyond; 0: any
    num_tokens: int  # KV rows; 0: as many as its device has room for
    device: str = "auto"
    dtype: str = "auto"
    numerics: str = "auto"  # "auto" | "exact" | "fast"
    num_threads: int = 1
    has_prefix_cache: bool = True
    max_batch: int = 64  # sequences at once
    token_budget: int = 0  # tokens in one forward; 0: forwards are timed to find it
    known_files: str = ""  # as a WorkerInfo of its predecessor named them, with their digest
    known_digest: str = ""
    colocated_draft: str | None = None  # of a target: the draft that shares its process and thread
    num_draft_tokens: int = 0  # KV rows of that one
    head: str = ""  # of a target: KIND:PATH of what drafts out of its own states instead
    min_head_score: float = 0.0  # of its first tokens right, when it is probed
    known_head_scores: tuple[tuple[str, float], ...] = ()  # found before: not tried again

    @property
    def is_pair(self) -> bool:
        """Whether a draft or a head shares the target's process."""
        return self.colocated_draft is not None or bool(self.head)


@dataclass(frozen=True, slots=True)
class Errand:
    """What a process that becomes a worker is told."""

    spec: WorkerSpec
    secret: bytes
    folder: str  # for its socket
    cores: tuple[int, ...] = ()  # to keep on; none: any
    tcp_host: str | None = None  # to listen on as well
    tcp_ports: tuple[int, ...] = (0,)  # of which it takes the first that is free
    orphan_s: float = 0.0  # without a coordinator for so long it ends itself; 0: never


def worker_environment(num_threads: int) -> dict[str, str]:
    """What must be set before torch is imported: threads that wait without spinning (on a shared
    core that costs 100 times), no progress bars of libraries, no network.
    """
    return {
        "OMP_NUM_THREADS": str(num_threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "TQDM_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # Pieces of every size come and go on a device: segments that grow are not cut up by them.
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        # Whether there is a GPU is asked of NVML: a process that asked CUDA could fork no more.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }
