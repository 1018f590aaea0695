"""OpenVINO GenAI: its continuous batching pipeline in float32, plain or with the draft.

The pair is exported once, by optimum-intel. One stream is one prompt at a time.
"""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai

CACHE_GB = 1


class Driver:
    """One pipeline for all that is plain, one for all that is drafted."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._threads = facts["num_threads"]
        folder = Path(facts["folder"])
        self._models = {role: exported(facts[role], folder / role) for role in ("target", "draft")}
        self._pipelines: dict[bool, Any] = {}

    def run(
        self, prompts: list[list[int]], num_tokens: int, temperature: float, num_streams: int,
        setting: str,
    ) -> tuple[float, list[list[int]]]:  # fmt: skip
        """Seconds and the ids of each prompt's continuation."""
        is_drafted = setting != "plain"
        if is_drafted not in self._pipelines:
            self._pipelines[is_drafted] = self._pipeline(is_drafted)
        pipeline = self._pipelines[is_drafted]
        sampling = openvino_genai.GenerationConfig()
        sampling.max_new_tokens = num_tokens
        sampling.ignore_eos = True
        sampling.do_sample = temperature > 0
        if temperature > 0:
            sampling.temperature = temperature
        if is_drafted:
            sampling.num_assistant_tokens = int(setting.removeprefix("k="))
        size = 1 if num_streams == 1 else len(prompts)
        ids: list[list[int]] = []
        started = time.perf_counter()
        for i in range(0, len(prompts), size):
            inputs = [openvino.Tensor(np.array([one], np.int64)) for one in prompts[i : i + size]]
            results = pipeline.generate(inputs, [sampling] * len(inputs))
            ids += [list(result.m_generation_ids[0]) for result in results]
        return time.perf_counter() - started, ids

    def close(self) -> None:
        """The pipelines end with the process."""

    def _pipeline(self, is_drafted: bool) -> Any:
        settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": self._threads}
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = CACHE_GB
        if is_drafted:
            draft = openvino_genai.draft_model(str(self._models["draft"]), "CPU", **settings)
            settings |= {"draft_model": draft}
        return openvino_genai.ContinuousBatchingPipeline(
            str(self._models["target"]), scheduler, "CPU", settings
        )


def exported(model: str, folder: Path) -> Path:
    """The model in OpenVINO's format."""
    if not (folder / "openvino_tokenizer.xml").exists():
        command = Path(sys.executable).with_name("optimum-cli")
        settings = ["--task", "text-generation-with-past", "--weight-format", "fp32"]
        subprocess.run([command, "export", "openvino", "--model", model, *settings, folder],
                       check=True)  # fmt: skip
    return folder
