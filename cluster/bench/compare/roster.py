"""Everybody that can be measured on a pair, and who is absent."""

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from outrider.actors.errors import InvalidConfig
from outrider.cluster.bench.compare.contender import Absent, Contender
from outrider.cluster.bench.compare.engines.foreign import FOREIGN, ForeignContender, absence
from outrider.cluster.bench.compare.engines.hugging_face import (
    HuggingFaceAssisted,
    HuggingFaceBatching,
    HuggingFaceGenerate,
    HuggingFaceLookup,
    HuggingFaceModels,
)
from outrider.cluster.bench.compare.engines.outrider_engine import outriders

TRANSFORMERS = "transformers"
PEERS = (TRANSFORMERS, *(foreign.key for foreign in FOREIGN))


@dataclass(frozen=True, slots=True)
class RosterPlan:
    """Who is wanted, and how. Raises InvalidConfig."""

    target: Path
    draft: Path | None
    num_threads: int  # that each may compute with at once
    most_streams: int
    context_len: int  # of the longest work
    folder: Path  # where models converted for peers are kept
    peers: tuple[str, ...] = PEERS
    pythons: Mapping[str, str] = field(default_factory=dict)  # peer to its own Python
    llama_server: str | None = None

    def __post_init__(self) -> None:
        for name in (*self.peers, *self.pythons):
            if name not in PEERS:
                raise InvalidConfig(f"Got peer {name!r}, accepted: {', '.join(PEERS)}")


def absent_peers(plan: RosterPlan) -> list[Absent]:
    """Those wanted that are not installed."""
    found = (
        absence(foreign, plan.pythons.get(foreign.key, sys.executable), plan.llama_server)
        for foreign in FOREIGN
        if foreign.key in plan.peers
    )
    return [one for one in found if one is not None]


def peers(plan: RosterPlan) -> list[Contender]:
    """Those wanted that are installed."""
    found: list[Contender] = []
    if TRANSFORMERS in plan.peers:
        models = HuggingFaceModels(plan.target, plan.draft)
        drafting = HuggingFaceAssisted if plan.draft else HuggingFaceLookup
        found += [HuggingFaceGenerate(models), drafting(models), HuggingFaceBatching(models)]
    missing = {one.name for one in absent_peers(plan)}
    models_of = {"target": plan.target} | ({"draft": plan.draft} if plan.draft else {})
    keys = {role: key_of(path) for role, path in models_of.items()}
    facts = {
        "target": str(plan.target),
        "draft": str(plan.draft) if plan.draft else None,
        "num_threads": plan.num_threads,
        "num_streams": plan.most_streams,
        "context_len": plan.context_len,
        "binary": plan.llama_server,
    }
    for foreign in FOREIGN:
        if foreign.key in plan.peers and foreign.name not in missing:
            python = plan.pythons.get(foreign.key, sys.executable)
            folders = {role: str(plan.folder / foreign.key / key) for role, key in keys.items()}
            found.append(ForeignContender(foreign, python, facts | {"folders": folders}))
    return found


def key_of(model: Path) -> str:
    """A name for what is made of these files, and of no others."""
    digest = hashlib.sha256()
    for file in sorted(model.iterdir()):
        if file.is_file():
            digest.update(file.name.encode())
            with file.open("rb") as opened:
                digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()[:16]


async def ours(plan: RosterPlan) -> list[Contender]:
    """Outrider, loaded; with room for every stream twice."""
    kv_tokens = max(4096, 2 * plan.most_streams * plan.context_len)
    return list(await outriders(plan.target, plan.draft, plan.num_threads, kv_tokens))
