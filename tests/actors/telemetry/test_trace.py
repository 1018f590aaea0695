"""The trace file: what was recorded is what a viewer finds, within bounds, or nothing at all."""

import json

import pytest

from outrider.actors.engine.delivery import Commit, nodes_told
from outrider.actors.errors import InvalidConfig
from outrider.actors.spec_decode.proposer import Proposal
from outrider.actors.telemetry.trace import Trace, record_round
from outrider.actors.transport.rows import VerdictRow


def read(path):
    """Spans by name as (track, start, end) in µs, and the document."""
    document = json.loads(path.read_text())
    tracks = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in document["traceEvents"]
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    spans = {
        event["name"]: (tracks[event["pid"], event["tid"]], event["ts"], event["ts"] + event["dur"])
        for event in document["traceEvents"]
        if event["ph"] == "X"
    }
    return spans, document


def test_spans_overlap_across_tracks_and_nest_within_one(tmp_path):
    path = tmp_path / "trace.json"
    with Trace(path) as trace:
        trace.span("coordinator", "round", 100.0, 0.012, rows=3)
        trace.span("target", "verify", 100.001, 0.010)
        trace.span("draft", "grow", 100.005, 0.0015, tokens=12)
        trace.span("coordinator", "commit", 100.011, 0.001)
    spans, _ = read(path)
    assert {name: span[0] for name, span in spans.items()} == {
        "round": "coordinator",
        "verify": "target",
        "grow": "draft",
        "commit": "coordinator",
    }
    assert spans["round"][1:] == (0, pytest.approx(12000))
    assert spans["verify"][1:] == (pytest.approx(1000), pytest.approx(11000))
    assert spans["verify"][1] < spans["grow"][1] < spans["grow"][2] < spans["verify"][2]
    assert spans["round"][1] < spans["commit"][1] < spans["commit"][2] <= spans["round"][2]


def test_arguments_travel_with_their_span(tmp_path):
    path = tmp_path / "trace.json"
    with Trace(path) as trace:
        trace.span("target", "verify", 1.0, 0.1, rows=2, reason="best", is_hit=True)
    (span,) = (e for e in read(path)[1]["traceEvents"] if e["ph"] == "X")
    assert span["args"] == {"rows": 2, "reason": "best", "is_hit": True}


def test_the_newest_spans_are_kept_and_the_lost_ones_counted(tmp_path):
    path = tmp_path / "trace.json"
    with Trace(path, max_spans=10) as trace:
        for i in range(35):
            trace.span("target", f"verify {i}", i, 0.5)
        assert len(trace._spans) == 10
    spans, document = read(path)
    assert set(spans) == {f"verify {i}" for i in range(25, 35)}
    assert spans["verify 25"][1] == 0
    assert document["otherData"] == {"num_spans_lost": 25}


def test_without_a_file_nothing_is_kept():
    with Trace() as trace:
        assert not trace.is_on
        trace.span("target", "verify", 0.0, 1.0)
        assert not trace._spans


def test_an_empty_run_leaves_a_readable_file(tmp_path):
    path = tmp_path / "trace.json"
    Trace(path).close()
    assert read(path)[0] == {}


def test_closing_twice_writes_once(tmp_path):
    path = tmp_path / "trace.json"
    trace = Trace(path)
    trace.span("target", "verify", 0.0, 1.0)
    trace.close()
    written = path.read_text()
    trace.span("target", "late", 2.0, 1.0)
    trace.close()
    assert path.read_text() == written


def test_a_file_that_cannot_be_written_is_refused_before_the_run(tmp_path):
    with pytest.raises(InvalidConfig, match=r"cannot be written.*nowhere"):
        Trace(tmp_path / "nowhere" / "trace.json")


def test_a_round_tells_what_was_judged_and_what_came_of_it(tmp_path):
    drafters = ("draft", "ngram", "draft")
    proposal = Proposal((5, 6, 7), (), drafters, (0, 1, 0), promised=1.25)
    verdict = VerdictRow(1, 1, 2, 9, (0.0,) * 3, "")
    commit = Commit(None, (5, 7, 9), None, proposal, verdict, "priced", None)
    with Trace(tmp_path / "trace.json") as trace:
        record_round(
            trace,
            bounds=(0.0, 1.0, 2.0, 3.0, 4.0),
            num_rows=1,
            num_prefill=0,
            target=(2.0, {"forward": 0.5}),
            nodes=nodes_told([commit]),
        )
    spans = {e["name"]: e for e in read(tmp_path / "trace.json")[1]["traceEvents"]}
    told = {"draft_judged": 2, "draft_accepted": 2, "draft_wasted": 0, "promised": 1.25}
    told |= {"ngram_judged": 1, "ngram_accepted": 0, "ngram_wasted": 1, "num_rows": 1}
    assert spans["verify"]["args"] == told
    assert spans["propose"]["args"] == {"num_rows": 1}
