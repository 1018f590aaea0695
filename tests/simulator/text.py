"""What the target would write, and how well the draft guesses it: functions of the position."""

from dataclasses import dataclass

NUM_WORDS = 900  # the truth is one of these; every other id is a wrong guess
WRONG = 1000

MASK = (1 << 64) - 1


def mixed(*key: int) -> int:
    """64 bits that depend on all of the key (splitmix64)."""
    state = 0
    for part in key:
        state = (state + part + 0x9E3779B97F4A7C15) & MASK
        state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & MASK
        state = ((state ^ state >> 27) * 0x94D049BB133111EB) & MASK
        state ^= state >> 31
    return state


def happens(chance: float, *key: int) -> bool:
    return mixed(*key) < chance * 2**64


@dataclass(frozen=True)
class Text:
    """The acceptance profile as data."""

    acceptance: float  # of each drafted token, if those before it were
    hit: float  # of an outcome that was given at least one guess

    def token(self, seq_id: int, position: int) -> int:
        return mixed(seq_id, position, 1) % NUM_WORDS

    def drafted(self, seq_id: int, position: int) -> int:
        """The draft's own token there."""
        is_right = happens(self.acceptance, seq_id, position, 2)
        return self.token(seq_id, position) if is_right else WRONG

    def guesses(self, seq_id: int, position: int, count: int) -> tuple[int, ...]:
        """What the draft expects the target to draw there."""
        wrong = tuple(range(WRONG + 1, WRONG + 1 + count))
        is_hit = happens(self.hit, seq_id, position, 3)
        return (self.token(seq_id, position), *wrong[:-1]) if is_hit else wrong
