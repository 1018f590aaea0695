"""OpenVINO GenAI: its continuous batching pipeline, plain, with the draft or with prompt lookup.

Models are exported once, by optimum-intel. One stream is one prompt at a time.
"""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai
from engine_setting import EngineSetting

CACHE_GB = 1
LOOKUP_LEN, NGRAM_LEN = 5, 3  # guessed after so many tokens that occurred before, as its samples do


class Driver:
    """One pipeline for each way to draft and each precision."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._threads = facts["num_threads"]
        self._models = {
            role: exported(facts[role], Path(folder) / "f32")
            for role, folder in facts["folders"].items()
        }
        self._pipelines: dict[tuple[bool, str, str], Any] = {}

    def run(
        self, prompts: list[list[int]], num_tokens: int, temperature: float, num_streams: int,
        setting: str,
    ) -> tuple[float, list[list[int]]]:  # fmt: skip
        """Seconds and the ids of each prompt's continuation."""
        chosen = EngineSetting.of(setting)
        key = (chosen.k > 0, chosen.lookup, chosen.precision)
        if key not in self._pipelines:
            self._pipelines[key] = self._pipeline(chosen)
        pipeline = self._pipelines[key]
        sampling = openvino_genai.GenerationConfig()
        sampling.max_new_tokens = num_tokens
        sampling.ignore_eos = True
        sampling.do_sample = temperature > 0
        if temperature > 0:
            sampling.temperature = temperature
        if chosen.k:
            sampling.num_assistant_tokens = chosen.k
        if chosen.lookup:
            sampling.num_assistant_tokens, sampling.max_ngram_size = LOOKUP_LEN, NGRAM_LEN
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

    def _pipeline(self, chosen: EngineSetting) -> Any:
        settings = {
            "INFERENCE_PRECISION_HINT": chosen.precision,
            "INFERENCE_NUM_THREADS": self._threads,
        }
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = CACHE_GB
        if chosen.k:
            draft = openvino_genai.draft_model(str(self._models["draft"]), "CPU", **settings)
            settings |= {"draft_model": draft}
        if chosen.lookup:
            settings |= {"prompt_lookup": True}
        return openvino_genai.ContinuousBatchingPipeline(
            str(self._models["target"]), scheduler, "CPU", settings
        )


def exported(model: str, folder: Path) -> Path:
    """The model in OpenVINO's format."""
    if not folder.exists():
        unfinished = folder.with_suffix(".part")
        command = Path(sys.executable).with_name("optimum-cli")
        settings = ["--task", "text-generation-with-past", "--weight-format", "fp32"]
        subprocess.run([command, "export", "openvino", "--model", model, *settings,
                        unfinished], check=True)  # fmt: skip
        unfinished.rename(folder)
    return folder
