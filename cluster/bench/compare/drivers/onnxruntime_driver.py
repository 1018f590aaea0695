"""onnxruntime-genai: its generator, plain or with the draft; several streams are one padded batch.

Models are built once for each precision, by its own builder. The texts of a batch are padded on
the left with an id that no text has.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai as genai
from engine_setting import EngineSetting

PRECISIONS = {"f32": "fp32", "bf16": "bf16"}  # in its builder's words


class Driver:
    """One model for each setting."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts
        config = json.loads((Path(facts["target"]) / "config.json").read_text())
        self._end = config["vocab_size"] - 1  # the rarest: no text ends before its length
        self._pad = config["vocab_size"] - 2  # not the end of a turn, which prompts have
        self._models: dict[str, Any] = {}

    def run(
        self, prompts: list[list[int]], num_tokens: int, temperature: float, num_streams: int,
        setting: str,
    ) -> tuple[float, list[list[int]]]:  # fmt: skip
        """Seconds and the ids of each prompt's continuation."""
        if setting not in self._models:
            self._models[setting] = self._model(EngineSetting.of(setting))
        model = self._models[setting]
        size = 1 if num_streams == 1 else len(prompts)
        ids: list[list[int]] = []
        started = time.perf_counter()
        for i in range(0, len(prompts), size):
            batch = prompts[i : i + size]
            ids += self._texts(model, batch, num_tokens, temperature)
        return time.perf_counter() - started, ids

    def close(self) -> None:
        """The models end with the process."""

    def _texts(
        self, model: Any, prompts: list[list[int]], num_tokens: int, temperature: float
    ) -> list[list[int]]:
        longest = max(map(len, prompts))
        parameters = genai.GeneratorParams(model)
        parameters.set_search_options(
            batch_size=len(prompts), max_length=longest + num_tokens, do_sample=temperature > 0,
            temperature=temperature or 1.0, top_k=0, top_p=1.0,
        )  # fmt: skip
        generator = genai.Generator(model, parameters)
        padded = [[self._pad] * (longest - len(ids)) + ids for ids in prompts]
        generator.append_tokens(np.array(padded, np.int32))
        for _ in range(num_tokens):
            generator.generate_next_token()
        return [generator.get_sequence(i)[longest:].tolist() for i in range(len(prompts))]

    def _model(self, chosen: EngineSetting) -> Any:
        if chosen.lookup:
            raise ValueError(f"Got setting {chosen.lookup!r}, accepted: plain, k=NUMBER")
        target = built(self._facts, "target", chosen.precision)
        config = genai.Config(str(target))
        threads = {"intra_op_num_threads": self._facts["num_threads"]}
        config.overlay(json.dumps({
            "model": {
                "decoder": {"session_options": threads},
                "eos_token_id": self._end,
                "pad_token_id": self._pad,
            }
        }))  # fmt: skip
        return genai.Model(config)


def built(facts: dict[str, Any], role: str, precision: str) -> Path:
    """The model in ONNX."""
    folder = Path(facts["folders"][role]) / precision
    if not folder.exists():
        unfinished = folder.with_suffix(".part")
        command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", facts[role]]
        command += ["-o", str(unfinished), "-p", PRECISIONS[precision], "-e", "cpu"]
        subprocess.run([*command, "-c", str(folder.with_suffix(".cache"))], check=True)
        unfinished.rename(folder)
    return folder
