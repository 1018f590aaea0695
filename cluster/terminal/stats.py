"""The table under `outrider generate --stats`."""

from typing import TYPE_CHECKING

from rich.table import Table

from outrider.actors.telemetry.statistics import Snapshot
from outrider.cluster.terminal.console import stderr

if TYPE_CHECKING:
    from outrider.actors.engine.info import EngineInfo

PARTS = ("schedule", "propose", "verify", "commit")


def print_stats(snapshot: Snapshot, info: "EngineInfo", seed: int) -> None:
    """Acceptance, tokens a round, and where the time went, to standard error."""
    stderr().print(_table(snapshot, info, seed))


def _table(snapshot: Snapshot, info: "EngineInfo", seed: int) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    drafted, accepted = snapshot.num_drafted, snapshot.num_accepted
    rate = f"{snapshot.acceptance_rate:.1%} ({accepted} of {drafted} drafted tokens)"
    table.add_row("acceptance", rate)
    table.add_row("tokens per round", f"{snapshot.tokens_per_target_pass:.2f}")
    passes = f"{snapshot.num_target_passes} target, {snapshot.num_draft_passes} draft"
    table.add_row("passes", passes)
    if info.pipeline != "lockstep":
        table.add_row("commits foreseen by trees", f"{snapshot.foreseen_rate:.1%}")
    fed, wasted = snapshot.num_draft_fed, snapshot.num_draft_wasted
    table.add_row("draft's tokens", f"{fed} computed, {wasted} for nothing")
    table.add_row("target idle", f"{snapshot.target_idle:.1%}")
    table.add_row("drafted a row", f"{drafted / max(1, snapshot.num_rows):.1f}")
    elapsed_s = sum(getattr(snapshot, f"{part}_s") for part in PARTS)
    speed = f", {snapshot.num_tokens / elapsed_s:.0f} tokens/s" if elapsed_s else ""
    table.add_row("tokens", f"{snapshot.num_tokens} in {elapsed_s:.3f} s{speed}")
    for part in PARTS:
        part_s = getattr(snapshot, f"{part}_s")
        share = part_s / elapsed_s if elapsed_s else 0.0
        table.add_row(f"  {part}", f"{part_s * 1e3:.1f} ms ({share:.0%})")
    table.add_row("transport", f"{snapshot.transport_s * 1e3:.1f} ms of verify")
    table.add_row("pipeline", info.pipeline)
    table.add_row("seed", str(seed))
    reason = f" ({info.numerics_reason})" if info.numerics_reason else ""
    table.add_row("numerics", f"{info.numerics}{reason}")
    table.add_row("fingerprint", info.fingerprint)
    return table
