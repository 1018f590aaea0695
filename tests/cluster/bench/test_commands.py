"""`outrider bench synth`, `compare` and `engine`, from end to end on a tiny pair."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outrider.actors.telemetry.statistics import Snapshot
from outrider.cluster.bench.compare import table
from outrider.cluster.bench.compare.comparison import Case, Series
from outrider.cluster.bench.compare.contender import Absent, Work
from outrider.cluster.bench.prompts import Ids
from outrider.cluster.cli import app

runner = CliRunner()
FEW = ["--tokens", "16", "--repeats", "1"]


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide, and without settings of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("OUTRIDER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "400")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Flags that name one, made by the command."""
    folder = tmp_path_factory.mktemp("made") / "pair"
    result = runner.invoke(
        app, ["bench", "synth", str(folder), "--target", "64x2", "--draft", "64x1"]
    )
    assert result.exit_code == 0, result.stderr
    assert "M parameters" in result.stderr
    return ["--target", str(folder / "target"), "--draft", str(folder / "draft")]


def test_compare_measures_all_that_is_here_and_lists_the_rest(
    pair: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "result.json"
    flags = ["--streams", "1", "--streams", "2", "--temperature", "0", "--threads", "1"]
    nowhere = ["--llama-server", "/nowhere/llama-server", "--json", str(file)]
    cores = os.sched_getaffinity(0)
    result = runner.invoke(app, ["bench", "compare", *pair, *flags, *FEW, *nowhere])
    assert result.exit_code == 0, result.stderr
    assert os.sched_getaffinity(0) == cores
    assert "not compared with llama.cpp: no program /nowhere/llama-server" in result.stdout
    found = json.loads(file.read_text())
    assert "llama.cpp" in {one["name"] for one in found["absent"]}
    alone, crowd = found["cases"]
    names = {"HF generate", "Outrider k=0", "Outrider lockstep"}
    assert {one["contender"] for one in alone["series"]} == {*names, "HF assisted"}
    assert {one["contender"] for one in crowd["series"]} == {*names, "HF continuous batching"}
    for case in (alone, crowd):
        assert case["failures"] == {}
        assert any(one["seconds"] for one in case["series"])
        for one in case["series"]:
            assert one["as_hf_generate"]["first_at"] is None, one
            if one["contender"].startswith("Outrider"):
                assert one["as_plain"]["first_at"] is None, one
                assert one["account"]["forward_ms"] > 0
        pairs = {(ratio["fast"].split(",")[0], ratio["slow"]) for ratio in case["ratios"]}
        assert ("Outrider lockstep", "HF generate") in pairs
        assert all(r["least"] <= r["median"] <= r["greatest"] for r in case["ratios"])


def series(contender: str, setting: str, seconds: list[float], ids: Ids) -> Series:
    is_ours = contender.startswith("Outrider")
    snapshot = Snapshot(num_target_passes=10, target_forward_s=0.05) if is_ours else None
    return Series(contender, setting, is_ours, 1.0, seconds, (ids,), snapshot)


def a_case(temperature: float) -> Case:
    """Everything that can be told, made up: our best is 2.5 times `generate`, and 3 are claimed."""
    measured = [
        series("HF generate", "", [5.0, 5.0, 6.0], (1, 2)),
        series("HF assisted", "k=3", [2.0, 2.0, 2.0], (1, 2)),
        series("HF assisted", "k=4", [], (1, 2)),
        series("Outrider k=0", "", [4.0, 4.0, 4.0], (1, 9)),
        series("Outrider lockstep", "k=3", [2.0, 2.0, 2.0], (1, 9)),
        series("Outrider lockstep", "k=4", [], (3, 9)),
    ]
    return Case(Work(((1,),), 2, temperature, 1), measured, {"vLLM (CPU)": "it is broken"})


def test_a_readme_gets_a_table_of_ratios() -> None:
    lines = table.markdown([a_case(0.0), a_case(1.0)], is_demo=True).splitlines()
    assert lines == [
        "| ratio of tokens/s | 1 stream, greedy | 1 stream, temperature 1 |",
        "|---|---|---|",
        "| best of Outrider / HF generate | 2.50 (2.50–3.00) | 2.50 (2.50–3.00) |",
        "| best of Outrider / HF assisted | 1.00 (1.00–1.00) | 1.00 (1.00–1.00) |",
        "| best of Outrider / Outrider k=0 | 2.00 (2.00–2.00) | 2.00 (2.00–2.00) |",
        "| Outrider k=0 / HF generate | 1.25 (1.25–1.50) | 1.25 (1.25–1.50) |",
    ]


def test_a_missed_bar_shows_where_the_time_goes(capsys: pytest.CaptureFixture[str]) -> None:
    absent = [Absent("llama.cpp", "no program llama-server", "build it")]
    table.show([a_case(0.0)], absent, 2, is_demo=True)
    told = capsys.readouterr().out
    assert "k=3 / HF generate: 2.50x (2.50 to 3.00)   bar 3: not met" in told
    assert "forward 5.00 ms" in told
    assert "Outrider lockstep, k=4 as Outrider k=0: 0/1 texts equal, first at token 0" in told
    assert "Outrider k=0 as HF generate: 0/1 texts equal, first at token 1" in told
    assert "vLLM (CPU) took no part: it is broken" in told
    assert "not compared with llama.cpp: no program llama-server; build it" in told


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ["--peer", "llama.cpp", "--llama-server", "/nowhere/llama-server"],
            "not compared with itself only",
        ),
        (["--peer", "vlm"], "accepted: transformers, llama.cpp, openvino, onnxruntime, vllm"),
        (["--python", "openvino"], "expected PEER=PATH"),
        (["--threads", "1000"], "expected 1 ≤ threads ≤"),
        (["--tokens", "0"], "Got tokens=0, expected at least 1"),
        (["--target", "/nowhere"], "Got target=/nowhere"),
    ],
)
def test_compare_refuses(flags: list[str], words: str) -> None:
    result = runner.invoke(app, ["bench", "compare", *flags])
    assert result.exit_code == 2
    assert words in result.stderr


def test_engine_sweeps_and_says_what_chances_promised(pair: list[str], tmp_path: Path) -> None:
    file = tmp_path / "sweep.json"
    flags = ["--batch", "2", "--k", "2", "--tokens", "24", "--json", str(file)]
    result = runner.invoke(app, ["bench", "engine", *pair, *flags])
    assert result.exit_code == 0, result.stderr
    cells = json.loads(file.read_text())
    assert [(one["temperature"], one["drafter"], one["verification"]) for one in cells] == [
        (0.0, "none", "coupled"),
        (0.0, "ngram", "coupled"),
        (0.0, "draft", "coupled"),
        (0.0, "tree", "coupled"),
        (1.0, "none", "coupled"),
        *(
            (1.0, who, how)
            for who in ("ngram", "draft", "tree")
            for how in ("coupled", "rejection")
        ),
    ]
    for one in cells:
        assert one["num_rows"] == pytest.approx(2), "the batch is whole all the time"
        assert one["tokens_per_s"] > 0
        if one["drafter"] != "tree":  # it drafts if that pays
            assert (one["draft_s"] > 0) == (one["drafter"] == "draft")
        if one["drafter"] == "draft" and one["verification"] == "coupled":
            assert 1 < one["promised_per_row"] < 2 * one["tokens_per_row"]
    refused = runner.invoke(app, ["bench", "engine", *pair, "--drafter", "drafty"])
    assert refused.exit_code == 2
    assert "accepted: none, ngram, draft, tree" in refused.stderr
