"""The bars of a soak (run_soak.py): each can be missed. test_load.py runs a short one."""

from typing import Any

import pytest
from endurance.soak import Result
from endurance.traffic import Figures
from endurance.verdict import nothing_lost, steady
from endurance.watch import Rest, Track

SECONDS = [float(second) for second in range(600)]
HELD = {"num_sequences": 0, "num_held": 0}


def at_rest(num_sockets: int = 4) -> Rest:
    return Rest(num_tasks=3, num_descriptors=9, num_sockets=num_sockets, num_processes=4)


def track(role: str, growth: float = 0.0) -> Track:
    """Of a process whose memory grows evenly over ten minutes."""
    return Track(role, SECONDS, [round(1e9 * (1 + growth * at / 600)) for at in SECONDS])


def tracks(growth: float = 0.0) -> dict[int, Track]:
    return {1: track("server"), 2: track("target", growth), 3: track("draft")}


def figures(**changed: Any) -> Figures:
    latencies = [(at, 0.01, 2) for at in SECONDS]
    return Figures(**({"num_texts": 9, "num_left": 1, "latencies": latencies} | changed))


def result(**changed: Any) -> Result:
    """Of ten minutes in which all was well."""
    well: dict[str, Any] = {
        "ended": 600.0,
        "figures": figures(),
        "tracks": tracks(),
        "before": at_rest(),
        "after": at_rest(),
        "pages": {"target": HELD, "draft": HELD},
    }
    return Result(**(well | changed))


SLOWER = figures(latencies=[(at, 0.01 if at < 500 else 0.0112, 2) for at in SECONDS])


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({}, None),
        ({"figures": figures(lost=["503"])}, "requests lost"),
        ({"figures": figures(wrong=["got a, expected b"])}, "texts that differ"),
        ({"figures": figures(num_texts=0)}, "texts"),
        ({"figures": figures(num_left=0)}, "streams left"),
        ({"pages": {"target": HELD, "draft": HELD | {"num_held": 1}}}, "pages and sequences held"),
        ({"pages": {"target": HELD}}, "pages and sequences held"),
        ({"zombies": [7]}, "zombies"),
        ({"after": at_rest(num_sockets=5)}, "at rest"),
        ({"after": at_rest(num_sockets=3)}, None),
        ({"tracks": tracks(growth=0.02)}, None),
        ({"tracks": tracks(growth=0.04)}, "memory of the target"),
        ({"tracks": {1: track("server")}}, "memory measured of"),
        ({"figures": SLOWER}, "p99 between tokens"),
        ({"figures": SLOWER, "pauses": [(499.0, 601.0)]}, None),
        ({"figures": figures(latencies=[])}, "p99 between tokens"),
    ],
)
def test_every_bar_can_be_missed(changed: dict[str, Any], name: str | None) -> None:
    bars = [*nothing_lost(result(**changed)), *steady(result(**changed))]
    missed = [bar.name for bar in bars if not bar.is_met]
    assert len(missed) == (name is not None)
    assert all(each.startswith(str(name)) for each in missed)


def test_a_machine_that_others_use_is_not_judged_by_its_latency() -> None:
    assert all(bar.is_met for bar in steady(result(figures=SLOWER), report_only=True))
