"""Trees for a target to judge, by somebody who knows what it will say: the truth at random places
among guesses that are wrong, in any order. So every path is accepted at some time, and no draft is
needed.
"""

import random

from outrider.actors.scheduling.sampling_params import MAX_K, VerificationMode
from outrider.actors.spec_decode.proposer import Proposal, Proposer


def random_tree(rng, truth, vocab):
    """(tokens, parents): up to MAX_K tokens, parents before children, siblings that differ."""
    size, num_true = rng.randint(0, MAX_K), rng.randint(0, min(6, len(truth)))
    nodes = [(at - 1, token) for at, token in enumerate(truth[:num_true])]
    children = set(nodes)
    while len(nodes) < size:
        parent = rng.randrange(-1, len(nodes))
        token = rng.choice([rng.randrange(5, vocab), *truth[:8]])
        if (parent, token) not in children:
            children.add((parent, token))
            nodes.append((parent, token))
    place, tokens, parents = {-1: None}, [], []
    while len(tokens) < len(nodes):
        free = [n for n, (parent, _) in enumerate(nodes) if n not in place and parent in place]
        chosen = rng.choice(free)
        parent, token = nodes[chosen]
        place[chosen] = len(tokens)
        parents.append(len(tokens) if parent < 0 else place[parent])
        tokens.append(token)
    return tuple(tokens), tuple(parents)


def plant_trees(monkeypatch, answers, vocab, seed=0):
    """Most proposals become such trees; how many, in a list. `answers`: ids by requests' keys."""
    preferred, rng, num_planted = Proposer.preferred, random.Random(seed), [0]

    def planted(self, plan):
        proposals = preferred(self, plan)
        for sequence in plan.rows:
            request = sequence.request
            num_done = sequence.num_committed - len(request.prompt_ids)
            truth = answers.get(key(request), ())[num_done:][: sequence.num_left - 1]
            mode, temperature = request.speculation.verification, request.sampling.temperature
            is_drawn = mode is VerificationMode.REJECTION and temperature > 0
            if truth and request.speculation.is_enabled and not is_drawn and rng.random() < 0.7:
                tokens, parents = random_tree(rng, truth, vocab)
                if tokens:
                    proposals[sequence.seq_id] = Proposal(
                        tokens,
                        (),
                        ("prediction",) * len(tokens),
                        parents,
                        (8,) * len(tokens),
                    )
                    num_planted[0] += 1
        return proposals

    monkeypatch.setattr(Proposer, "preferred", planted)
    return num_planted


def key(request):
    """A request without how it is speculated on."""
    return request.prompt_ids, request.sampling, request.seed, request.choice
