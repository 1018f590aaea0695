"""What a server's /metrics say of its speculation: vLLM's names, which others have taken over."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

SAMPLE = re.compile(r"^(?P<name>[\w:]+)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+\d+)?\s*$")
POSITION = re.compile(r'position="(\d+)"')
PER_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"


@dataclass(frozen=True, slots=True)
class ServerCounters:
    """Counts since the server's start, or between two moments, over all its requests."""

    num_drafts: float = 0  # verifications that had drafted tokens
    num_draft_tokens: float = 0
    num_accepted_tokens: float = 0
    num_generated_tokens: float = 0
    num_verdicts: float = 0  # of ours alone: target passes by sequence, drafted or not
    accepted_by_position: Mapping[int, float] = field(default_factory=dict)  # from 0

    def since(self, before: "ServerCounters") -> "ServerCounters":
        """What was counted after `before`."""
        earlier = before.accepted_by_position
        by_position = {p: n - earlier.get(p, 0) for p, n in self.accepted_by_position.items()}
        return ServerCounters(
            self.num_drafts - before.num_drafts,
            self.num_draft_tokens - before.num_draft_tokens,
            self.num_accepted_tokens - before.num_accepted_tokens,
            self.num_generated_tokens - before.num_generated_tokens,
            self.num_verdicts - before.num_verdicts,
            by_position,
        )


FIELDS = {  # of ServerCounters, by a metric's name without whose it is
    "spec_decode_num_drafts_total": "num_drafts",
    "spec_decode_num_draft_tokens_total": "num_draft_tokens",
    "spec_decode_num_accepted_tokens_total": "num_accepted_tokens",
    "generation_tokens_total": "num_generated_tokens",
    "verdicts_total": "num_verdicts",
}


def read_counters(text: str) -> ServerCounters | None:
    """The counters in a page of Prometheus' text format; None where none is of speculation."""
    sums: dict[str, float] = defaultdict(float)
    by_position: dict[int, float] = defaultdict(float)
    speculates = False
    for sample in map(SAMPLE.match, text.splitlines()):
        if sample is None:
            continue
        name = sample["name"].rpartition(":")[2]
        if name not in FIELDS and name != PER_POSITION:
            continue
        value = float(sample["value"])
        speculates = speculates or name.startswith("spec_decode")
        if name in FIELDS:
            sums[FIELDS[name]] += value
        elif position := POSITION.search(sample["labels"] or ""):
            by_position[int(position[1])] += value
    return ServerCounters(**sums, accepted_by_position=by_position) if speculates else None
