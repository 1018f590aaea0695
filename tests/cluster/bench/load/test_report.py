"""The page of a measurement: one file that asks for nothing, and shows what was measured."""

import asyncio
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from clients.scripted_openai import Reply, ScriptedServer, end, measured, text
from cluster.browser import Browser
from virtual_time import VirtualLoop

from outrider.clients.load.answer import StreamChunk
from outrider.clients.load.figures.distribution import Distribution, distribution
from outrider.clients.load.load_generator import LoadPlan
from outrider.clients.load.measurement import Measurement
from outrider.clients.load.record import RequestRecord
from outrider.clients.load.result import result_of
from outrider.cluster.bench.load.report.histogram import histogram
from outrider.cluster.bench.load.report.lanes import lanes
from outrider.cluster.bench.load.report.page import page_of

NUM_REQUESTS = 40
BLOCK = {
    "num_draft_tokens": 8,
    "num_accepted_draft_tokens": 5,
    "num_spec_steps": 3,
    "num_rounds": 4,
    "acceptance_histogram": [0, 1, 2],
}
HIGHEST = """
    const bars = [...document.querySelectorAll(arguments[0])];
    return Math.max(...bars.map((bar) => Number(bar.getAttribute("height"))));"""
NASTY = "</script><script>alert(1)</script>&amp; $title"


def measurement_of(plan: LoadPlan | None = None) -> Measurement:
    """Of a server in virtual time whose every seventh answer fails."""

    def script(body: dict[str, Any]) -> Reply:
        if len(server.bodies) % 7 == 0:
            return Reply(status=500)
        slow = 0.02 * (len(server.bodies) % 5)
        chunks = [text(0.05 + slow, "a", 1), text(0.03, "bcd", 4), text(0.04 + slow, "ef", 6)]
        return Reply([*chunks, *end(6, metrics={"speculative_decoding": BLOCK})])

    async def measure() -> Measurement:
        return await measured(
            server,
            plan or LoadPlan(rate=20, num_requests=NUM_REQUESTS),
            objectives_ms={"ttft": 100},
        )

    server = ScriptedServer(script)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(measure())


@pytest.fixture(scope="module")
def measurement() -> Measurement:
    return measurement_of()


@pytest.fixture(scope="module")
def page(measurement: Measurement) -> str:
    return page_of(measurement, result_of(measurement, "outrider bench serve --rate 20"))


class References(HTMLParser):
    """What a page would fetch, run or lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str | None]] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        names = ("src", "href", "srcset", "action", "data", "poster", "ping", "style")
        self.found += [each for each in attributes if each[0] in names or each[0].startswith("on")]


def references(page: str) -> References:
    parser = References()
    parser.feed(page)
    parser.close()
    return parser


def test_it_asks_for_nothing(page: str) -> None:
    found = references(page)
    assert found.found == []
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(found.tags)
    assert re.findall(r"url\(|@import|\bimport\b|fetch\(|XMLHttpRequest|WebSocket", page) == []
    addresses = set(re.findall(r"https?://[^\s\"'<]+", page))
    assert addresses == {"http://www.w3.org/2000/svg", "http://scripted"}  # a name, and the server
    assert "default-src 'none'" in page


@pytest.mark.parametrize("addition", ['<img src="//a">', '<a href="x">', '<p onclick="x">'])
def test_a_reference_would_be_found(page: str, addition: str) -> None:
    assert references(page.replace("<h1>", f"{addition}<h1>")).found


def test_what_the_server_says_stays_text(measurement: Measurement) -> None:
    nasty = replace(measurement, model=NASTY)
    page = page_of(nasty, result_of(nasty, NASTY))
    assert references(page).tags.count("script") == 2
    assert "alert(1)</script>" not in page
    assert "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;amp; $title" in page


def test_it_says_what_was_measured(page: str, measurement: Measurement) -> None:
    num_failed = measurement.summary.failures["http_500"]
    assert num_failed > 3
    for words in (
        "scripted under load",
        "Poisson arrivals, 20 requests/s; 40 requests",
        f"{num_failed} requests failed ({num_failed} http_500) and are in no latency",
        "outrider bench serve --rate 20",
        "62.5% accepted",
        "the usage that each chunk tells",
        "continuous_usage_stats",
    ):
        assert words in page, words


def test_an_empty_measurement_has_a_page() -> None:
    measurement = measurement_of(LoadPlan(rate=0.001, duration_s=1.0))
    assert measurement.summary.records == []
    page = page_of(measurement, result_of(measurement, "x"))
    assert "0 answered in" in page


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.driver.quit()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_draws(browser: Browser, page: str, tmp_path: Path, scheme: str) -> None:
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    for width in (1200, 420):
        browser.show(file.as_uri(), width=width, scheme=scheme)
        browser.wait("document.querySelectorAll('figure svg').length === 7")
        assert len(browser.all("[data-chart=lanes] .request")) == NUM_REQUESTS
        assert len(browser.all("[data-chart=lanes] .failed")) == page_failures(page) + 1  # the key
        for chart in ("ttft", "itl", "tpot", "e2el"):
            assert browser.run(HIGHEST, f".{chart} .bar") > 50, chart
        assert len(browser.all("line.objective")) == 1
        wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        assert not browser.run(f"return {wide}")
        assert browser.complaints() == []
        assert browser.run("return performance.getEntriesByType('resource').length") == 0


def page_failures(page: str) -> int:
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert data is not None
    return sum(bool(request["failure"]) for request in json.loads(data[1])["requests"])


def test_the_tip_tells_of_a_request(browser: Browser, page: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    browser.show(file.as_uri())
    browser.wait("document.querySelector('.request') !== null")
    browser.run(
        "const bar = document.querySelector('.request rect');"
        "bar.scrollIntoView();"
        "const at = bar.getBoundingClientRect();"
        "const where = { clientX: at.x + at.width / 2, clientY: at.y + at.height / 2 };"
        "bar.dispatchEvent(new PointerEvent('pointermove', { ...where, bubbles: true }));"
    )
    assert browser.find("#tip").text.startswith("request 0\n7 tokens in, 6 out\nfirst token ")


@pytest.mark.parametrize(
    "values",
    [[5.0], [0.0, 0.0], [0.0], [1.0, 2.0, 3.0], [100.0, 100.1, 100.2], [1.0] * 500 + [9e4], [1e-7]],
    ids=lambda values: str(values[:3]),
)
def test_every_value_is_in_a_bar_or_beyond(values: list[float]) -> None:
    made = distribution(values)
    assert made is not None
    bars = histogram(made)
    assert sum(bars.counts) + bars.num_beyond == len(values)
    assert len(bars.counts) == (48 if len(values) > 500 else 16)
    assert bars.step > 0
    assert bars.num_beyond <= math.ceil(0.005 * len(values))
    for index, count in enumerate(bars.counts):
        low = bars.start + index * bars.step
        inside = [value for value in values if low - 1e-9 <= value < low + bars.step + 1e-9]
        assert len(inside) >= count


def test_bars_begin_at_zero_unless_that_hides_all() -> None:
    assert histogram(Distribution((10.0, 40.0))).start == 0
    assert histogram(Distribution((100.0, 101.0))).start > 90


def test_lanes_are_places() -> None:
    """Two at once need two lines; the third takes the first that is free again."""

    def record(sent_s: float, end_s: float) -> RequestRecord:
        return RequestRecord(0, sent_s, sent_s, sent_s, end_s, 1, (StreamChunk(end_s, 1),))

    assert lanes([record(0, 4), record(1, 2), record(2, 3), record(3.5, 5), record(3.6, 4)]) == [
        0,
        1,
        1,
        1,
        2,
    ]
    assert lanes([]) == []
