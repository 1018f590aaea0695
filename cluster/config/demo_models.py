"""The demonstration pair in the package: `demo` where a model directory is asked for."""

from pathlib import Path

DEMO = "demo"
HONESTLY = (
    "demo is a model of 7.8 million parameters: it recites short answers about well-known parts of "
    "Python's library; asked about anything else it says that it was not taught that, or makes "
    "something up"
)


def demo_target() -> Path:
    """The demo's target."""
    return Path(__file__).parents[1] / DEMO / "target"


def demo_head(kind: str) -> Path:
    """A head of the target: 'eagle3' or 'medusa'."""
    return Path(__file__).parents[1] / DEMO / kind


def demo_draft() -> Path:
    """The draft distilled from it."""
    return Path(__file__).parents[1] / DEMO / "draft"
