"""From a worker's spec to a worker: the model, its runner, the verdict's backend, and what to say
of them.
"""

import hashlib
import json
import os
import platform
import time
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

import msgspec
import torch

from outrider.actors.errors import InvalidConfig, InvalidRequest
from outrider.actors.heads.footprint import head_footprint
from outrider.actors.heads.loading import load_head
from outrider.actors.runner.cpu.threads import share_among
from outrider.actors.runner.forward_batch import Segment
from outrider.actors.runner.model_loader import load_model
from outrider.actors.runner.pooled_runner import PooledRunner
from outrider.actors.runner.runner import Runner
from outrider.actors.runner.selftest import sample_tokens
from outrider.actors.sizing.footprint import footprint
from outrider.actors.sizing.machine import this_machine
from outrider.actors.sizing.memory import TREE_TOKENS, Pair, cpu_tokens, device_tokens
from outrider.actors.text.tokenizer import Tokenizer
from outrider.actors.text.user_turn import UserTurn
from outrider.actors.transport.messages import WorkerInfo
from outrider.actors.transport.worker import Worker
from outrider.actors.transport.worker_spec import WorkerSpec
from outrider.actors.workers.colocated import ColocatedWorker
from outrider.actors.workers.draft import DraftWorker
from outrider.actors.workers.head import HeadWorker
from outrider.actors.workers.model_worker import ModelWorker
from outrider.actors.workers.target import TargetWorker
from outrider.actors.workers.timing import chunk_len
from outrider.actors.workers.warming import capture_steps, warm_up
from outrider.kernels.torch_backend import backend_for, choice

PAGE_SIZE = 16
TIMED_TOKENS = 64  # of a prompt's chunk
PROFILED_TOKENS = 2048  # of the forward whose memory is looked at


def load_worker(spec: WorkerSpec, *, warms_up: bool = False) -> Worker:
    """Load the model, or a pair of them, and build the worker; one that is to serve for long
    warms up. Raises OutriderError.
    """
    worker = _load_one(spec, warms_up)
    if spec.head:
        return _with_head(spec, worker, warms_up=warms_up)
    if spec.colocated_draft is None:
        _fill_device(spec, worker)
        _ready(warms_up, worker)
        return worker
    of_draft = replace(
        spec,
        role="draft",
        model=spec.colocated_draft,
        colocated_draft=None,
        num_tokens=spec.num_draft_tokens or spec.num_tokens,
    )
    draft = _load_one(of_draft, warms_up)
    assert isinstance(worker, TargetWorker)
    assert isinstance(draft, DraftWorker)
    _fill_device(spec, worker, draft)
    _ready(warms_up, worker, draft)
    return ColocatedWorker(worker, draft)


def _with_head(spec: WorkerSpec, worker: ModelWorker, *, warms_up: bool) -> Worker:
    assert isinstance(worker, TargetWorker)
    assert isinstance(worker.runner, Runner)
    kind, _, value = spec.head.partition(":")
    turn, known = partial(_user_turn, Path(spec.model)), spec.known_head_scores
    found = load_head(kind, value, worker.runner, spec.min_head_score, turn, known)
    worker.description = msgspec.structs.replace(
        worker.description, head=kind, head_scores=found.scores
    )
    head = HeadWorker(found, worker, shares_pages=spec.has_prefix_cache)
    if spec.num_tokens:
        head.runner.resize(spec.num_tokens + spec.max_batch * TREE_TOKENS)
    _fill_device(spec, worker, head)
    _ready(warms_up, worker)
    return ColocatedWorker(worker, head)


def _user_turn(folder: Path) -> UserTurn | None:
    """Of a target that chats."""
    try:
        return UserTurn.of(Tokenizer(folder))
    except InvalidRequest:
        return None


def _load_one(spec: WorkerSpec, warms_up: bool) -> ModelWorker:
    share_among(spec.num_threads)
    folder = Path(spec.model)
    loaded = load_model(folder, device=spec.device, dtype=spec.dtype)
    if spec.numerics not in ("auto", "exact", "fast"):
        raise InvalidConfig(f"Got numerics={spec.numerics!r}, accepted: auto, exact, fast")
    # The draft's rounding can cost acceptance, never an answer: nothing is refused on its account.
    is_strict = spec.numerics == "exact" and spec.role == "target"
    runner = Runner(
        loaded,
        num_tokens=spec.num_tokens or PROFILED_TOKENS,
        page_size=PAGE_SIZE,
        numerics=None if spec.numerics == "auto" else spec.numerics,  # type: ignore[arg-type]
        is_strict=is_strict,
    )
    backend, description = backend_for(torch.device(loaded.device)), _describe(spec, runner)
    if warms_up:
        warm_up(runner, backend)
        budget = spec.token_budget
        if not budget and spec.role == "target":
            budget = spec.max_batch + chunk_len(runner)
        description = msgspec.structs.replace(
            description, token_s=_token_s(runner), token_budget=budget
        )
    if spec.role == "draft":
        num_ids, shares = spec.num_target_ids, spec.has_prefix_cache
        return DraftWorker(runner, backend, description, num_ids, shares_pages=shares)
    target = TargetWorker(runner, backend, description, shares_pages=spec.has_prefix_cache)
    if warms_up:
        target.grammars.load(loaded.eos_ids)
    return target


def _fill_device(spec: WorkerSpec, *workers: ModelWorker) -> None:
    """Where the pools' size was left open: as many rows as the device has room for."""
    if spec.num_tokens:
        return
    first = workers[0].runner
    target, draft = footprint(Path(spec.model)), None
    if spec.colocated_draft is not None:
        draft = footprint(Path(spec.colocated_draft))
    elif spec.head:
        draft = head_footprint(spec.head, Path(spec.model))
    pair = Pair(target, draft, first.loaded.dtype.itemsize, spec.max_batch)
    if first.loaded.device == "cpu":
        num_tokens = cpu_tokens(pair, this_machine().free_bytes, 1, None)
    else:
        used, total = max(
            (_peak(w.runner) for w in workers if isinstance(w.runner, Runner)),
            key=lambda found: found[0],
        )
        num_tokens = device_tokens(pair, total, used)
    for worker in workers:
        is_draft = worker.role == "draft"
        worker.runner.resize(num_tokens + is_draft * spec.max_batch * TREE_TOKENS)
        num_pages = worker.runner.pool.num_pages
        worker.description = msgspec.structs.replace(worker.description, num_pages=num_pages)


def _ready(warms_up: bool, *workers: ModelWorker) -> None:
    """Steps of usual sizes are captured, over the pools that stay."""
    for worker in workers if warms_up else ():
        if isinstance(worker.runner, Runner):
            capture_steps(worker.runner)
            steps = worker.runner.model.steps
            worker.description = msgspec.structs.replace(worker.description, steps=steps)


def _peak(runner: PooledRunner) -> tuple[int, int]:
    """Bytes of the device that are in use amid a long forward, and its bytes in all."""
    device = torch.device(runner.loaded.device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    cache, num_tokens = runner.open(), min(PROFILED_TOKENS, runner.context_len) - 1
    runner.forward([Segment(cache, sample_tokens(runner.vocab_size, num_tokens), num_tokens)])
    runner.close(cache)
    torch.cuda.synchronize(device)
    more = torch.cuda.max_memory_allocated(device) - before
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return total - free + more, total


def _token_s(runner: Runner) -> float:
    """Seconds of a forward for each token of a chunk: what a hang is told from, to begin with."""
    cache = runner.open()
    num_tokens = min(TIMED_TOKENS, runner.context_len - 1)
    started = time.monotonic()
    logits = runner.forward([Segment(cache, sample_tokens(runner.vocab_size, num_tokens), 1)])
    logits[0, 0].item()  # a device has ended too
    runner.close(cache)
    return (time.monotonic() - started) / num_tokens


def _describe(spec: WorkerSpec, runner: Runner) -> WorkerInfo:
    loaded = runner.loaded
    files = _identity(Path(spec.model))
    # To read a large checkpoint once more would prolong the pause after a target's death.
    digest = spec.known_digest if files == spec.known_files else _digest(Path(spec.model))
    return WorkerInfo(
        role=spec.role,
        pid=os.getpid(),
        model=Path(spec.model).name,
        num_parameters=loaded.num_parameters,
        vocab_size=loaded.vocab_size,
        context_len=loaded.context_len,
        eos_ids=loaded.eos_ids,
        device=str(loaded.device),
        dtype=str(loaded.dtype).removeprefix("torch."),
        numerics=runner.numerics,
        numerics_reason=runner.numerics_reason,
        verdicts=choice(torch.device(loaded.device))[1],
        fingerprint=_fingerprint(digest, runner, spec.num_threads),
        depends_on_threads=_depends_on_threads(runner),
        steps=runner.model.steps,
        files=files,
        digest=digest,
        page_size=PAGE_SIZE,
        num_pages=runner.pool.num_pages,
    )


def _files(path: Path) -> list[Path]:
    """Those that a text depends on."""
    names = ("config.json", "generation_config.json", "tokenizer.json")
    return [f for f in sorted(path.glob("*")) if f.suffix == ".safetensors" or f.name in names]


def _identity(path: Path) -> str:
    """Changes whenever one of the files does; names no content."""
    stats = [(file.name, file.stat()) for file in _files(path)]
    facts = [(name, s.st_ino, s.st_size, s.st_mtime_ns) for name, s in stats]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _digest(path: Path) -> str:
    """Of all that the files hold."""
    digest = hashlib.sha256()
    for file in _files(path):
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()


def _depends_on_threads(runner: Runner) -> bool:
    """Whether logits may be other bits with another number of threads."""
    return runner.numerics != "exact" or runner.model.depends_on_threads


def _fingerprint(files: str, runner: Runner, num_threads: int) -> str:
    """Equal fingerprints give equal text: weights, tokenizer, dtype, numerics, machine, and threads
    where they matter.
    """
    digest = hashlib.sha256(bytes.fromhex(files))
    loaded = runner.loaded
    device = (
        torch.cuda.get_device_name(loaded.device)
        if str(loaded.device).startswith("cuda")
        else f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    )
    level = runner.model.level  # the same model computed another way rounds another way
    facts: list[str | int | None] = [
        str(loaded.dtype),
        runner.numerics,
        device,
        torch.__version__,
        level,
    ]
    if loaded.device != "cpu":  # what its libraries choose between rounds otherwise
        facts += [torch.version.cuda, torch.backends.cudnn.version()]  # type: ignore[no-untyped-call]
        facts.append(None if runner.model.on_device is None else version("triton"))
    elif _depends_on_threads(runner):
        facts.append(num_threads)
    digest.update(json.dumps(facts).encode())
    return f"fp_{runner.numerics}_{digest.hexdigest()[:16]}"
