"""What the controller is asked for, and told of."""

from actors.spec_decode.listener import decoding

from outrider.actors.lookahead.fixed import FixedController
from outrider.actors.lookahead.price_controller import PriceController
from outrider.actors.lookahead.round_report import RowReport
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams
from outrider.actors.scheduling.sequence import Event, Sequence
from outrider.actors.spec_decode.ahead import AheadDraft
from outrider.actors.spec_decode.draft_length import DraftLength
from outrider.actors.spec_decode.proposer import Proposal, Proposer
from outrider.actors.telemetry.statistics import Statistics
from outrider.actors.telemetry.trace import Trace


class Watched(FixedController):
    def __init__(self):
        super().__init__(4)
        self.asked = []

    def choose(self, num_rows):
        self.asked.append(num_rows)
        return super().choose(num_rows)


def test_the_load_is_of_those_that_get_a_verdict():
    """Prompts that are being read give none: with many of them the load would be one that no round
    ever has, of which nothing is learned.
    """
    length, statistics, controller = DraftLength(), Statistics(), Watched()
    draft = AheadDraft(length, None, statistics, Trace())
    proposer = Proposer(draft, length, controller, statistics)
    reading = []
    for seq_id in range(20, 40):
        request = Request((1, 2, 3), SamplingParams(max_tokens=64), 0)
        reading.append(Sequence(seq_id, request, 67))
        reading[-1].apply(Event.ADMIT)
    running = [*reading, decoding()]
    choice = proposer.choose(running)
    proposer.observe(choice, [RowReport("draft", 4, 1)] * 3, 100, 0.01, 0.01)
    proposer.choose(running)
    proposer.observe(choice, [], 500, 0.01, 0.01)  # nobody's first verdict yet
    proposer.choose(running)
    proposer.choose(running[:2])
    assert controller.asked == [21, 3, 3, 2]


def test_room_is_kept_for_as_much_as_was_drafted_of_late():
    length, statistics, prices = DraftLength(), Statistics(), PriceController()
    proposer = Proposer(AheadDraft(length, prices, statistics, Trace()), length, prices, statistics)
    choice = proposer.choose([decoding()])
    assert proposer.num_expected(choice) == 0
    for _ in range(100):
        proposer.observe(choice, [RowReport("draft", 4, 1), RowReport("none", 0, 0)], 0, 0.01, 0.01)
    assert proposer.num_expected(choice) == 2
    fixed = FixedController(6)
    proposer = Proposer(AheadDraft(length, None, statistics, Trace()), length, fixed, statistics)
    assert proposer.num_expected(proposer.choose([decoding()])) == 6


def test_the_chain_of_a_tree_is_its_first_nodes():
    tree = Proposal(
        (5, 6, 7, 8, 9), (), ("a", "b", "c", "d", "e"), (0, 1, 0, 1, 2), (10, 11, 12, 13, 14)
    )
    assert tree.chain() == Proposal((5, 7, 9), (), ("a", "c", "e"), edges=(10, 12, 14))
    chain = tree.chain()
    assert chain.chain() is chain
