"""A draft that only listens, and a sequence to draft for."""

from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import SamplingParams, SpeculationParams
from outrider.actors.scheduling.scheduler import SchedulerOutput
from outrider.actors.scheduling.sequence import Event, Sequence


class Listener:
    """A client that only listens."""

    def __init__(self):
        self.heard = []

    def tell(self, message):
        self.heard.append(message)

    def on_push(self, take):
        pass


def decoding(**speculation):
    asked = SpeculationParams(**speculation)
    request = Request((1, 2, 3), SamplingParams(max_tokens=64), 0, speculation=asked)
    sequence = Sequence(7, request, 67)
    sequence.apply(Event.ADMIT)
    sequence.num_prefilled = sequence.num_committed - 1
    sequence.apply(Event.PREFILLED)
    return sequence


async def propose(draft, sequence):
    return await draft.propose(SchedulerOutput([sequence]), {}, lambda _: iter(()))
