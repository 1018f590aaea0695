"""What must be in a process's environment before it imports the libraries that run models."""

from outrider.actors.worker_spec import thread_environment


def worker_environment(num_threads: int) -> dict[str, str]:
    """Threads that wait without spinning, no progress bars of libraries, no network."""
    quiet = {"TQDM_DISABLE": "1", "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    return {**thread_environment(num_threads), **quiet, "TOKENIZERS_PARALLELISM": "false"}
