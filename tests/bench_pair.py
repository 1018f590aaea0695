"""The tiny synthetic pair of the tests."""

from pathlib import Path

from outrider.cluster.bench.synthetic.pair import ModelSize, PairPlan

DEMO = Path(__file__).resolve().parents[1] / "cluster" / "demo"
TINY = PairPlan(ModelSize(128, 2), ModelSize(64, 1))
