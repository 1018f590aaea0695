"""A comparison in the terminal, in a README, and as a document."""

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from outrider.cluster.bench.compare.account import Account
from outrider.cluster.bench.compare.claims import Claim, claims
from outrider.cluster.bench.compare.comparison import Case, Series
from outrider.cluster.bench.compare.contender import Absent
from outrider.cluster.bench.compare.engines.hugging_face import GENERATE
from outrider.cluster.bench.compare.engines.outrider_engine import PLAIN


def show(cases: list[Case], absent: list[Absent], num_threads: int, *, is_demo: bool) -> None:
    """To standard output: it is the result."""
    console = Console(highlight=False, soft_wrap=True)
    for case in cases:
        console.print(_table(case, num_threads))
        for claim in claims(case, is_demo=is_demo):
            console.print(_line(claim))
            if claim.is_missed and claim.fast.snapshot is not None:
                console.print(Text(f"    {Account.of(claim.fast.snapshot)}", style="dim"))
        for line in _texts(case):
            console.print(line)
        for name, reason in case.failures.items():
            console.print(Text.assemble(("! ", "bold yellow"), f"{name} took no part: {reason}"))
        console.print()
    for one in absent:
        console.print(Text(f"not compared with {one}", style="dim"))


def title(num_streams: int, temperature: float) -> str:
    """A case in words."""
    streams = "1 stream" if num_streams == 1 else f"{num_streams} streams"
    return f"{streams}, {'greedy' if temperature == 0 else f'temperature {temperature:g}'}"


def _title(case: Case) -> str:
    return title(case.work.num_streams, case.work.temperature)


def _table(case: Case, num_threads: int) -> Table:
    num, tokens = len(case.work.prompts), case.work.num_tokens
    threads = "1 thread" if num_threads == 1 else f"{num_threads} threads"
    caption = f"{_title(case)}: {num} prompts × {tokens} tokens, {threads} each"
    table = Table(title=caption, title_justify="left", box=None, padding=(0, 2, 0, 0),
                  header_style="dim")  # fmt: skip
    for column in ("", "tokens/s", "least", "greatest", "of its first run"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for series in case.series:
        first = f"{case.work.total_tokens / series.trial_s:.0f}"
        if not series.seconds:
            table.add_row(Text(series.name, style="dim"), "", "", "", first)
            continue
        rates = [case.work.total_tokens / seconds for seconds in series.seconds]
        shown = (case.rate(series), min(rates), max(rates))
        table.add_row(series.name, *(f"{rate:.0f}" for rate in shown), first)
    return table


def _line(claim: Claim) -> Text:
    text = Text(f"{claim.fast.name} / {claim.slow.name}: {claim.ratio}")
    if claim.bar is not None:
        verdict = ("not met", "bold red") if claim.is_missed else ("met", "green")
        text.append(f"   bar {claim.bar:g}: ").append(*verdict)
    return text


def _texts(case: Case) -> list[Text]:
    """Ours must be the same at every temperature; others' may differ where two tokens tie."""
    plain = case.best(PLAIN)
    found = {
        series.name: case.divergence(series, plain)
        for series in case.series
        if plain is not None and series.is_ours and series is not plain
    }
    lines = [
        Text(f"{name} as {PLAIN}: {divergence}", style="bold red")
        for name, divergence in found.items()
        if not divergence.is_none
    ]
    if found and not lines:
        lines = [Text(f"every other setting of Outrider as {PLAIN}: all texts equal")]
    reference = case.best(GENERATE) or plain
    if reference is None or case.work.temperature > 0:
        return lines
    for name in (PLAIN, *case.contenders(is_ours=False)):
        other = case.best(name)
        if other is not None and other is not reference:
            divergence = case.divergence(other, reference)
            lines.append(Text(f"{other.name} as {reference.name}: {divergence}"))
    return lines


def markdown(cases: list[Case], *, is_demo: bool) -> str:
    """Rows of ratios, a column for each case."""
    found: dict[str, dict[int, str]] = {}
    for column, case in enumerate(cases):
        for claim in claims(case, is_demo=is_demo):
            ratio = claim.ratio
            shown = f"{ratio.median:.2f} ({ratio.least:.2f}–{ratio.greatest:.2f})"
            found.setdefault(claim.name, {})[column] = shown
    lines = ["| ratio of tokens/s | " + " | ".join(map(_title, cases)) + " |"]
    lines.append("|---" * (len(cases) + 1) + "|")
    for name, cells in found.items():
        row = (cells.get(column, "") for column in range(len(cases)))
        lines.append(f"| {name} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def as_document(
    cases: list[Case], absent: list[Absent], num_threads: int, *, is_demo: bool
) -> dict[str, Any]:
    """Everything measured, for JSON."""
    return {
        "threads": num_threads,
        "absent": [asdict(one) for one in absent],
        "cases": [_case(case, is_demo=is_demo) for case in cases],
    }


def _case(case: Case, *, is_demo: bool) -> dict[str, Any]:
    plain, reference = case.best(PLAIN), case.best(GENERATE)
    return {
        "streams": case.work.num_streams,
        "temperature": case.work.temperature,
        "prompts": len(case.work.prompts),
        "tokens": case.work.num_tokens,
        "failures": case.failures,
        "series": [_series(case, one, plain, reference) for one in case.series],
        "ratios": [
            {"name": claim.name, "fast": claim.fast.name, "slow": claim.slow.name, "bar": claim.bar,
             **asdict(claim.ratio)}
            for claim in claims(case, is_demo=is_demo)
        ],
    }  # fmt: skip


def _series(
    case: Case, series: Series, plain: Series | None, reference: Series | None
) -> dict[str, Any]:
    return {
        "contender": series.contender,
        "setting": series.setting,
        "first_s": series.trial_s,
        "seconds": series.seconds,
        "account": series.snapshot and asdict(Account.of(series.snapshot)),
        "as_plain": plain and asdict(case.divergence(series, plain)),
        "as_hf_generate": reference and asdict(case.divergence(series, reference)),
    }
