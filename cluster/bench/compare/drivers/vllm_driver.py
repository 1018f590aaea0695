"""vLLM on the CPU: an engine for each k, and one for plain decoding, started when first asked.

Each has a process of its own, which sleeps while another is measured.
"""

import os
import time
from typing import Any

KV_GB = 1


class Driver:
    """Engines by setting."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts
        self._engines: dict[str, Any] = {}
        os.environ |= {
            "VLLM_CPU_KVCACHE_SPACE": str(KV_GB),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # to the cores of this process, as all others
            "OMP_NUM_THREADS": str(facts["num_threads"]),
        }

    def run(
        self, prompts: list[list[int]], num_tokens: int, temperature: float, num_streams: int,
        setting: str,
    ) -> tuple[float, list[list[int]]]:  # fmt: skip
        """Seconds and the ids of each prompt's continuation."""
        import vllm

        if setting not in self._engines:
            self._engines[setting] = self._engine(setting)
        engine = self._engines[setting]
        sampling = vllm.SamplingParams(
            temperature=temperature, max_tokens=num_tokens, ignore_eos=True, detokenize=False
        )
        asked = [{"prompt_token_ids": ids} for ids in prompts]
        size = 1 if num_streams == 1 else len(prompts)
        ids: list[list[int]] = []
        started = time.perf_counter()
        for i in range(0, len(asked), size):
            results = engine.generate(asked[i : i + size], sampling, use_tqdm=False)
            ids += [list(result.outputs[0].token_ids) for result in results]
        return time.perf_counter() - started, ids

    def close(self) -> None:
        """The engines end with the process."""

    def _engine(self, setting: str) -> Any:
        import vllm

        speculation = None
        if setting != "plain":
            k = int(setting.removeprefix("k="))
            speculation = {"model": self._facts["draft"], "num_speculative_tokens": k}
        return vllm.LLM(
            self._facts["target"],
            dtype="float32",
            max_model_len=self._facts["context_len"],
            max_num_seqs=self._facts["num_streams"],
            enable_prefix_caching=False,
            speculative_config=speculation,
        )
