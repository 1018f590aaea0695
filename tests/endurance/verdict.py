"""What a soak's result is held to: each bar with what was found and what is accepted."""

from dataclasses import dataclass

from endurance.traffic import SHOWN

WARM_SHARE = 0.2  # of the time: memory and latency are measured after it
WINDOW_SHARE = 0.1  # of the time: over which memory is taken
MAX_GROWTH = 0.02
MAX_DRIFT = 0.10


@dataclass(frozen=True, slots=True)
class Bar:
    """One thing that has to be so."""

    name: str
    found: str
    accepted: str
    is_met: bool


def nothing_lost(result):
    """The bars that hold however fast the machine is, and however short the soak."""
    seen = result.figures
    pages, before, after = result.pages.values(), result.before, result.after
    held = sum(each["num_held"] + each["num_sequences"] for each in pages)
    return [
        Bar("requests lost", _shown(seen.lost), "0", not seen.lost),
        Bar("texts that differ", _shown(seen.wrong), "0", not seen.wrong),
        Bar("texts", str(seen.num_texts), "at least 1", seen.num_texts > 0),
        Bar("streams left", str(seen.num_left), "at least 1", seen.num_left > 0),
        Bar("pages and sequences held at the end", str(held), "0", held == 0 and len(pages) == 2),
        Bar("zombies", str(len(result.zombies)), "0", not result.zombies),
        Bar("at rest", str(after), str(before), after.is_within(before)),
    ]


def steady(result, report_only=False):
    """The bars of a long soak."""
    growths = memory(result).items()
    bars = [
        Bar(f"memory of the {role}", _percent(growth), f"< {MAX_GROWTH:.0%}", growth < MAX_GROWTH)
        for role, growth in growths
    ]
    found = {role for role, _ in growths}
    roles = {"server", "target", "draft"}
    bars.append(Bar("memory measured of", ", ".join(sorted(found)), "all three", roles <= found))
    first, last = latency(result)
    drift = last / first - 1 if first else 0.0
    is_met = report_only or (first > 0 and drift < MAX_DRIFT)
    accepted = "anything (--report-only)" if report_only else f"< {MAX_DRIFT:.0%}"
    times = f"{1e3 * first:.1f} ms to {1e3 * last:.1f} ms, {_percent(drift)}"
    bars.append(Bar("p99 between tokens, kills' pauses taken out", times, accepted, is_met))
    return bars


def memory(result):
    """The most that any process of each role grew, of those that lived long enough to tell."""
    duration_s, grown = result.ended - result.begun, {}
    for track in result.tracks.values():
        growth = track.growth(WARM_SHARE * duration_s, WINDOW_SHARE * duration_s)
        if growth is not None:
            grown[track.role] = max(growth, grown.get(track.role, growth))
    return grown


def latency(result):
    """The 99th percentile in the first and in the last third after the warm-up, in seconds."""
    start = result.begun + WARM_SHARE * (result.ended - result.begun)
    third_s = (result.ended - start) / 3
    return (
        _p99(result, start, start + third_s),
        _p99(result, result.ended - third_s, result.ended),
    )


def _p99(result, begin, end):
    """Over tokens; gaps that touch a kill's pause are left out."""
    counted = sorted(
        (each_s, num_tokens)
        for at, each_s, num_tokens in result.figures.latencies
        if begin <= at < end and not _is_disturbed(result, at - each_s * num_tokens, at)
    )
    left = 0.99 * sum(num_tokens for _, num_tokens in counted)
    for each_s, num_tokens in counted:
        left -= num_tokens
        if left <= 0:
            return each_s
    return 0.0


def _is_disturbed(result, begin, end):
    return any(begin < until and end > since for since, until in result.pauses)


def _percent(share):
    return f"{share:+.2%}"


def _shown(failures):
    return "; ".join([str(len(failures)), *failures[:SHOWN]])
