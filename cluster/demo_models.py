"""The demonstration pair in the package: `demo` where a model directory is asked for."""

from pathlib import Path

DEMO = "demo"


def demo_target() -> Path:
    """The demo's target."""
    return Path(__file__).with_name(DEMO) / "target"


def demo_draft() -> Path:
    """The draft distilled from it."""
    return Path(__file__).with_name(DEMO) / "draft"
