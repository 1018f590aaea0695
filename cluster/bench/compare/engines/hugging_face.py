"""transformers' own ways to generate, on the models that Outrider takes: plain, assisted by the
draft, and continuous batching.
"""

import asyncio
import logging
import time
from pathlib import Path
from typing import Any, Protocol

import torch
import transformers

from outrider.actors.errors import OutriderError
from outrider.cluster.bench.compare.contender import Outcome, Work
from outrider.cluster.bench.prompts import Ids

GENERATE, ASSISTED, BATCHING = "HF generate", "HF assisted", "HF continuous batching"
LOOKUP, LOOKUP_KS = "HF prompt lookup", (3, 10)
DYNAMIC = "dynamic"  # its default: as many tokens as the draft is confident of, up to 20
ASSISTED_KS = (3, 4, 5, 6)
PAGE_LEN, MAX_BATCH_TOKENS = 256, 512


class HuggingFaceModels:
    """The pair, or a target alone, as transformers loads it; no text ends before its length."""

    def __init__(self, target: Path, draft: Path | None) -> None:
        transformers.logging.set_verbosity_error()
        self.target = _load(target)
        self.draft: Any = None if draft is None else _load(draft)
        names = (
            "num_assistant_tokens",
            "num_assistant_tokens_schedule",
            "assistant_confidence_threshold",
        )
        usual = getattr(self.draft, "generation_config", None)
        self._defaults = {name: getattr(usual, name, None) for name in names}

    def draft_as(self, setting: str) -> Any:
        """The draft, told how far to run ahead."""
        chosen = self._defaults
        if setting != DYNAMIC:
            chosen = {
                "num_assistant_tokens": int(setting.removeprefix("k=")),
                "num_assistant_tokens_schedule": "constant",
                "assistant_confidence_threshold": 0.0,
            }
        for name, value in chosen.items():
            setattr(self.draft.generation_config, name, value)
        return self.draft


def _load(path: Path) -> Any:
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, use_safetensors=True, local_files_only=True
    ).eval()
    model.generation_config.max_length = None
    model.generation_config.eos_token_id = None
    if model.generation_config.pad_token_id is None:
        model.generation_config.pad_token_id = 0
    return model


def _sampling(temperature: float) -> dict[str, Any]:
    if temperature == 0:
        return {"do_sample": False}
    return {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}


class HuggingFaceGenerate:
    """`generate`; several streams are one padded batch."""

    name = GENERATE
    is_ours = False

    def __init__(self, models: HuggingFaceModels) -> None:
        self._models = models

    def settings(self, work: Work) -> tuple[str, ...]:
        return ("",)

    async def run(self, work: Work, setting: str) -> Outcome:
        return await asyncio.to_thread(self._generate, work, setting)  # the loop goes on

    async def close(self) -> None:
        pass

    def _generate(self, work: Work, setting: str) -> Outcome:
        size = 1 if work.num_streams == 1 else len(work.prompts)
        batches = [work.prompts[i : i + size] for i in range(0, len(work.prompts), size)]
        torch.manual_seed(0)
        started = time.perf_counter()
        ids = [one for batch in batches for one in self._batch(batch, work, setting)]
        return Outcome(time.perf_counter() - started, tuple(ids))

    def _batch(self, batch: tuple[Ids, ...], work: Work, setting: str) -> list[Ids]:
        longest = max(map(len, batch))
        inputs = torch.tensor([[0] * (longest - len(ids)) + list(ids) for ids in batch])
        mask = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in batch])
        out = self._models.target.generate(
            inputs,
            attention_mask=mask,
            max_new_tokens=work.num_tokens,
            **_sampling(work.temperature),
            **self._assistance(setting),
        )
        return [tuple(row) for row in out[:, longest:].tolist()]

    def _assistance(self, setting: str) -> dict[str, Any]:
        return {}


class HuggingFaceAssisted(HuggingFaceGenerate):
    """`generate` with an assistant; transformers assists one stream at a time."""

    name = ASSISTED

    def settings(self, work: Work) -> tuple[str, ...]:
        if work.num_streams > 1:
            return ()
        return (DYNAMIC, *(f"k={k}" for k in ASSISTED_KS))

    def _assistance(self, setting: str) -> dict[str, Any]:
        return {"assistant_model": self._models.draft_as(setting)}


class HuggingFaceLookup(HuggingFaceGenerate):
    """`generate` with prompt lookup: copies of the text so far, one stream at a time."""

    name = LOOKUP

    def settings(self, work: Work) -> tuple[str, ...]:
        return () if work.num_streams > 1 else tuple(f"k={k}" for k in LOOKUP_KS)

    def _assistance(self, setting: str) -> dict[str, Any]:
        return {"prompt_lookup_num_tokens": int(setting.removeprefix("k="))}


class HuggingFaceBatching:
    """Continuous batching, for several streams; setting it up is not in the clock."""

    name = BATCHING
    is_ours = False

    def __init__(self, models: HuggingFaceModels) -> None:
        self._model = models.target
        logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)

    def settings(self, work: Work) -> tuple[str, ...]:
        return ("",) if work.num_streams > 1 else ()

    async def run(self, work: Work, setting: str) -> Outcome:
        return await asyncio.to_thread(self._generate, work, setting)  # the loop goes on

    async def close(self) -> None:
        pass

    def _generate(self, work: Work, setting: str) -> Outcome:
        longest = max(map(len, work.prompts)) + work.num_tokens
        sampling = transformers.GenerationConfig(
            max_new_tokens=work.num_tokens,
            eos_token_id=-1,  # none would do: it is refused
            pad_token_id=0,
            **_sampling(work.temperature),
        )
        pool = transformers.ContinuousBatchingConfig(
            page_size=PAGE_LEN,
            num_blocks=(len(work.prompts) + 1) * -(-longest // PAGE_LEN),
            max_batch_tokens=MAX_BATCH_TOKENS,
        )
        usual = self._model.config._attn_implementation
        try:
            with self._model.continuous_batching_context_manager(
                generation_config=sampling, continuous_batching_config=pool, warmup=False
            ) as manager, torch.no_grad():  # fmt: skip
                _batched(manager, work.prompts[:1], 1)  # its thread is up
                started = time.perf_counter()
                ids = _batched(manager, work.prompts, work.num_tokens)
                return Outcome(time.perf_counter() - started, ids)
        finally:
            self._model.set_attn_implementation(usual)


class _Manager(Protocol):
    def add_requests(self, inputs: list[list[int]], max_new_tokens: int) -> list[str]: ...
    def get_result(self, timeout: float) -> Any: ...
    def is_running(self) -> bool: ...


def _batched(manager: _Manager, prompts: tuple[Ids, ...], num_tokens: int) -> tuple[Ids, ...]:
    names = manager.add_requests([list(ids) for ids in prompts], max_new_tokens=num_tokens)
    found: dict[str, Ids] = {}
    while len(found) < len(names):
        result = manager.get_result(timeout=1)
        if result is not None and result.is_finished():
            if result.error is not None:
                raise OutriderError(f"transformers' continuous batching failed: {result.error}")
            found[result.request_id] = tuple(result.generated_tokens)
        elif result is None and not manager.is_running():
            raise OutriderError("transformers' continuous batching ended without an answer")
    return tuple(found[name] for name in names)
