"""What Outrider claims of speed, as ratios that a comparison can miss."""

from dataclasses import dataclass

from outrider.cluster.bench.compare.comparison import Case, Series
from outrider.cluster.bench.compare.engines.hugging_face import ASSISTED, BATCHING, GENERATE
from outrider.cluster.bench.compare.engines.outrider_engine import DEFAULT, HTTP, LOCKSTEP, PLAIN
from outrider.cluster.bench.compare.ratio import Ratio

AHEAD = 1.0
DEMO_GENERATE, DEMO_ASSISTED = 3.0, 2.2  # greedy, one stream, the demo pair
NOT_SLOWER = 0.98  # with several streams, than decoding plainly
SERVED = 0.85  # over HTTP, streamed, of what it is in process
BATCH, PLAIN_BATCH = 1.3, 1.3  # over transformers' continuous batching
PLAIN_BATCH_STREAMS = 32


@dataclass(frozen=True, slots=True)
class Claim:
    """One ratio, and what it should be."""

    name: str  # the same whichever settings were best
    fast: Series
    slow: Series
    ratio: Ratio
    bar: float | None  # nothing is claimed where there is none

    @property
    def is_missed(self) -> bool:
        return self.bar is not None and self.ratio.median < self.bar


def claims(case: Case, *, is_demo: bool) -> list[Claim]:
    """Our best against everybody's best, and what our plain decoding is worth."""
    best, plain, default = _our_best(case), case.best(PLAIN), case.best(DEFAULT)
    num_streams = case.work.num_streams
    pairs: list[tuple[str, Series | None, Series | None, float | None]] = [
        ("best of Outrider", best, case.best(name), _bar(case, name, is_demo=is_demo))
        for name in case.contenders(is_ours=False)
    ]
    pairs.append(("best of Outrider", best, plain, NOT_SLOWER if num_streams > 1 else None))
    if default is not best:
        pairs.append((DEFAULT, default, plain, None))
    pairs.append((PLAIN, plain, case.best(GENERATE), None))
    bar = PLAIN_BATCH if num_streams == PLAIN_BATCH_STREAMS else None
    pairs.append((PLAIN, plain, case.best(BATCHING), bar))
    pairs.append((HTTP, case.best(HTTP), case.best(LOCKSTEP), SERVED))
    return [
        Claim(f"{name} / {slow.contender}", fast, slow, case.ratio(fast, slow), bar)
        for name, fast, slow, bar in pairs
        if fast is not None and slow is not None
    ]


def _our_best(case: Case) -> Series | None:
    """Of what speculates in process; the others of ours are other sides of a ratio."""
    ours = [case.best(name) for name in (LOCKSTEP, DEFAULT)]
    return min((one for one in ours if one), key=lambda one: one.median_s, default=None)


def _bar(case: Case, peer: str, *, is_demo: bool) -> float | None:
    if case.work.num_streams > 1:
        return BATCH if peer == BATCHING else None
    if case.work.temperature > 0:
        return None
    if not is_demo:
        return AHEAD
    return {GENERATE: DEMO_GENERATE, ASSISTED: DEMO_ASSISTED, "vLLM (CPU)": AHEAD}.get(peer)
