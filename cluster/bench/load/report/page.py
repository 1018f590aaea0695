"""A measurement as a page: one file that asks for nothing, so that it can be kept and sent.

What is drawn is prepared here and drawn by the scripts beside; the words and the table need none.
"""

import html
import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from outrider.clients.load.cautions import cautions
from outrider.clients.load.figures.distribution import PERCENTILES
from outrider.clients.load.measurement import Measurement
from outrider.cluster.bench.load.report.drawings import drawings_of
from outrider.cluster.bench.load.report.headline import headline
from outrider.cluster.bench.load.words import (
    counted_words,
    figures,
    latency_rows,
    load_words,
    milliseconds,
    speculation_words,
)

FOLDER = Path(__file__).parent
SCRIPTS = ("plot.js", "charts.js", "report.js")
MEANINGS = {
    "TTFT": "time to first token: from sending to the first chunk with a token in it",
    "TPOT": "time per output token after the first, one value a request",
    "ITL": "inter-token latency: 0 for tokens that came with the one before",
    "chunk gap": "from a chunk to the next, however many tokens they held",
    "E2EL": "end-to-end latency: from sending to the last token",
    "queue": "waiting in the generator for one of a limited number of places",
    "lateness": "of the generator behind its own schedule",
    "timer lag": "of the generator's own timers: what is seen may have come that much earlier",
}


def page_of(measurement: Measurement, result: Mapping[str, Any]) -> str:
    """The whole page; `result` is what the JSON file holds."""
    template = Template((FOLDER / "report.html").read_text(encoding="utf-8"))
    summary = measurement.summary
    return template.substitute(
        style=(FOLDER / "report.css").read_text(encoding="utf-8"),
        script="\n".join((FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS),
        data=_embedded(drawings_of(measurement)),
        title=_text(f"{measurement.model} under load"),
        date=_text(measurement.began_at.strftime("%-d %B %Y, %H:%M %Z")),
        load=_text(load_words(measurement.spec.plan)),
        prompts=_text(measurement.spec.prompts.described),
        headline="\n".join(_tile(*tile) for tile in headline(summary)),
        cautions=_cautions(cautions(measurement)),
        rows="\n".join(_latencies(measurement)),
        totals="\n".join(_pair(name, value) for name, value in figures(summary)),
        speculation=_text(" · ".join(map(speculation_words, summary.speculations[:1]))),
        setting="\n".join(_pair(name, value) for name, value in _setting(measurement)),
        counted=_text(counted_words(summary)),
        command=_text(str(result["command"])),
        body=_text(json.dumps(result["request_body"], indent=2, ensure_ascii=False)),
    )


def _setting(measurement: Measurement) -> list[tuple[str, str]]:
    spec = measurement.spec
    pairs = [
        ("server", f"{spec.endpoint.path} of {spec.connection.base_url}"),
        ("model", measurement.model),
        ("seed", str(spec.plan.seed)),
        ("warm-up", f"{spec.num_warmups} requests before, not counted"),
    ]
    if measurement.fingerprint is not None:
        pairs.append(("fingerprint", measurement.fingerprint))
    return pairs + [("not taken", refusal) for refusal in measurement.finding.refusals]


def _latencies(measurement: Measurement) -> list[str]:
    rows = []
    for row in latency_rows(measurement):
        values = row.values
        shown = [values.mean, *map(values.percentile, PERCENTILES), values.most]
        cells = "".join(f"<td>{milliseconds(value)}</td>" for value in shown)
        meaning = f"<small>{_text(MEANINGS[row.name])}</small>"
        rows.append(f'<tr><th scope="row">{_text(row.name)} {meaning}</th>{cells}</tr>')
    return rows


def _tile(name: str, value: str, note: str) -> str:
    figure, below = f"<dd>{_text(value)}</dd>", f"<dd class=note>{_text(note)}</dd>"
    return f"<div><dt>{_text(name)}</dt>{figure}{below}</div>"


def _pair(name: str, value: str) -> str:
    return f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>"


def _cautions(sentences: list[str]) -> str:
    if not sentences:
        return ""
    items = "".join(f"<li>{_text(sentence)}</li>" for sentence in sentences)
    return f"<aside><h2>Before you believe this</h2><ul>{items}</ul></aside>"


def _text(text: str) -> str:
    return html.escape(text)


def _embedded(data: Mapping[str, Any]) -> str:
    """JSON that cannot end the element it stands in."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
