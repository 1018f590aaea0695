"""Prompts of a given length that mean nothing: random words, or random token ids."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outrider.clients.load.prompt_request import Ask, Endpoint, prompt_fields

# Common enough to be one token each in most vocabularies, with the space before it.
WORDS = (
    "about above across after again air all almost along also always and animal another answer "
    "any are around ask away back because been before began being below best better between big "
    "bird black blue boat body book both bring build call came can car carry change children city "
    "close cold come could country course cut day did different does door down draw each early "
    "earth eat end enough even every example eye face fact fall family far farm fast father feel "
    "feet few field find fire first fish five fly follow food form found four friend from full "
    "game gave get girl give good great green ground group grow had half hand hard have head hear "
    "help here high hold home horse hour house how idea into island just keep kind king knew know "
    "land language large last late learn leave left letter life light like line list little live "
    "long look made make man many map mark may mean measure men might mile money moon more most "
    "mother mountain move much music must name near need never new next night north note now "
    "number off often old once one only open order other our out over own page paper part pass "
    "people picture place plan plant play point power problem question quick rain ran reach read "
    "real red river road rock room round rule run said same saw say school sea second see "
    "sentence set seven she ship short should show side simple sing six size sleep slow small "
    "snow some song soon sound south space stand star start state stay step stop story street "
    "strong study such sun sure table take talk teach tell ten than that the their them then "
    "there these they thing think this those though thought three time together told too took top "
    "toward town travel tree true try turn two under until upon use very voice wait walk want war "
    "warm was watch water way week went were west what wheel when where which while white who why "
    "will wind with without wood word work world would write year you young"
).split()


@dataclass(frozen=True, slots=True)
class Shape:
    """The lengths of synthetic prompts and answers, in words, or in tokens where `ids` is given."""

    input_len: int  # of what each prompt has of its own
    output_len: int  # tokens
    prefix_len: int = 0  # before it, the same in all prompts: caches show
    spread: float = 0.0  # both lengths are uniform within (1 ± spread) times theirs
    ids: range | None = None  # of the vocabulary, to draw token ids from

    def __post_init__(self) -> None:
        if not (self.input_len >= 1 and self.output_len >= 1 and self.prefix_len >= 0):
            raise ValueError(
                f"Got input_len={self.input_len}, output_len={self.output_len} and "
                f"prefix_len={self.prefix_len}, expected at least 1, 1 and 0"
            )
        if not 0 <= self.spread < 1:
            raise ValueError(f"Got spread={self.spread}, expected 0 ≤ spread < 1")
        if self.ids is not None and not (len(self.ids) > 0 and self.ids.start >= 0):
            raise ValueError(f"Got ids={self.ids}, expected a range of token ids with one in it")


def synthetic_asks(shape: Shape, endpoint: Endpoint, seed: int | str) -> Iterator[Ask]:
    """Requests of this shape, without end; a seed's are always the same."""
    source: Sequence[str | int] = WORDS if shape.ids is None else shape.ids
    # The prefix has a seed of its own: what is drawn after it does not depend on its length.
    prefix = random.Random(f"{seed} prefix").choices(source, k=shape.prefix_len)
    rng = random.Random(f"{seed} prompts")
    while True:
        output_len = _length(shape.output_len, shape.spread, rng)
        drawn = rng.choices(source, k=_length(shape.input_len, shape.spread, rng))
        yield Ask(prompt_fields(endpoint, _joined([*prefix, *drawn])), output_len)


def _length(mean: int, spread: float, rng: random.Random) -> int:
    return max(1, rng.randint(round(mean * (1 - spread)), round(mean * (1 + spread))))


def _joined(drawn: Sequence[str | int]) -> str | list[int]:
    ids = [each for each in drawn if isinstance(each, int)]
    return ids or " ".join(map(str, drawn))
