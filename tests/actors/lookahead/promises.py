"""What the adaptive controller promises, each as a check in worlds whose best choice is known."""

from collections import Counter
from itertools import pairwise

from actors.lookahead.worlds import World, best_rate, drive, plain_rate

from outrider.actors.lookahead.adaptive import AdaptiveController

LOCKSTEP = {
    "one row": {},
    "poor draft": {"acceptance": 0.5},
    "dear draft": {"acceptance": 0.7, "step_ms": 6.0},
    "a batch": {"num_rows": 8, "acceptance": 0.6, "fixed_ms": 5, "token_ms": 0.06, "step_ms": 0.6},
    "free up to 120 tokens": {
        "num_rows": 64,
        "acceptance": 0.7,
        "token_ms": 0.1,
        "free_tokens": 120,
        "step_ms": 0.5,
    },
}
HOPELESS = {
    "acceptance 0.1": {"acceptance": 0.1},
    "bound by computing": {
        "num_rows": 64,
        "acceptance": 0.5,
        "fixed_ms": 3,
        "token_ms": 0.1,
        "step_ms": 0.5,
        "step_token_ms": 0.01,
    },
    "a draft as slow as the target": {"step_ms": 13.0, "acceptance": 0.6},
}
LOST = {"acceptance": 0.02, "step_ms": 4.0, "token_ms": 1.0}


def controller(k=4, **kwargs):
    return AdaptiveController(k, **kwargs)


def late_rate(world, chooser, num_rounds):
    """Tokens per second from here on."""
    tokens, clock_ms = world.num_tokens, world.clock_ms
    drive(world, chooser, num_rounds)
    return 1000 * (world.num_tokens - tokens) / (world.clock_ms - clock_ms)


def finds_the_best(**settings):
    best = best_rate(**settings)
    for noise in (0.0, 0.1):
        world = World(noise=noise, **settings)
        chooser = controller()
        drive(world, chooser, 400)
        assert world.num_tokens / world.clock_ms * 1000 >= 0.88 * best
        late = late_rate(world, chooser, 2000)
        assert late >= 0.95 * best, (noise, late / best)


def finds_the_best_in_lockstep():
    for settings in LOCKSTEP.values():
        finds_the_best(**settings)


def is_never_much_below_plain():
    """From the first round on, over a run of some ten thousand tokens a row."""
    for name, settings in HOPELESS.items():
        world = World(noise=0.05, **settings)
        drive(world, controller(), 3000)
        share = 1000 * world.num_tokens / world.clock_ms / plain_rate(**settings)
        assert share >= 0.98, (name, share)


def a_rising_load_ends_drafting():
    """One row may draft freely, 64 rows are bound by computing, and back again."""
    world = World(fixed_ms=3, token_ms=0.1, step_ms=0.4, acceptance=0.5)
    chooser = controller()
    assert drive(world, chooser, 200)[-1].k > 0
    world.num_rows = 64
    choices = drive(world, chooser, 200)
    assert Counter(choice.k for choice in choices[40:]).most_common(1)[0][0] == 0
    world.num_rows = 1
    assert drive(world, chooser, 200)[-1].k > 0


def falling_acceptance_ends_drafting():
    world = World(acceptance=0.9)
    chooser = controller()
    assert drive(world, chooser, 300)[-1].k >= 4
    world.acceptance = 0.05
    choices = drive(world, chooser, 1500)
    assert Counter(choice.k for choice in choices[300:]).most_common(1)[0][0] == 0


def rising_acceptance_is_noticed():
    """By a controller that had learned for long how poor the draft is, and gave up for long."""
    world = World(acceptance=0.9, num_rows=4, step_ms=3.0)
    chooser = controller()
    assert drive(world, chooser, 1000)[-1].k > 0
    world.acceptance = 0.02
    assert drive(world, chooser, 8000)[-1].k == 0
    world.acceptance = 0.9
    drive(world, chooser, 8000)
    assert drive(world, chooser, 100)[-1].k >= 3


def one_try_tells():
    """However much was known of the draft before it became good again."""
    world = World(acceptance=0.9, num_rows=16, token_ms=0.5)
    chooser = controller()
    drive(world, chooser, 1000)
    world.acceptance = 0.02
    assert drive(world, chooser, 700)[-1].k == 0
    world.acceptance = 0.9
    while drive(world, chooser, 1)[0].reason != "probe":
        pass
    assert drive(world, chooser, 60)[-1].k >= 2


def each_load_keeps_its_choice():
    """Many rows and one, in turns shorter than it takes to decide anew."""
    world = World(fixed_ms=3, token_ms=0.1, step_ms=0.4, acceptance=0.5)
    chooser = controller()
    choices: dict[int, list[int]] = {1: [], 64: []}
    for _ in range(40):
        for num_rows in choices:
            world.num_rows = num_rows
            choices[num_rows] += [choice.k for choice in drive(world, chooser, 8)]
    assert min(choices[1][160:]) > 0
    assert choices[64][160:].count(0) >= 150


def a_slower_verify_is_noticed():
    """Somebody else computes on the target's device: a longer verify deserves more tokens.

    Once what was measured before has aged, that is.
    """
    world = World(acceptance=0.8, fixed_ms=4.0, step_ms=2.0)
    chooser = controller()
    before = drive(world, chooser, 500)[-1].k
    world.fixed_ms = 40.0
    assert drive(world, chooser, 1500)[-1].k >= before + 3


def an_outlier_changes_no_choice():
    """Whenever it comes: at a decision, too."""
    expected = drive(World(), controller(), 500)
    for every in range(400, 417):
        assert drive(World(outlier_every=every), controller(), 500) == expected


def a_slow_first_round_is_no_reason_to_stop():
    """Kernels are compiled, caches are cold."""
    world = World(outlier_every=1)
    chooser = controller()
    drive(world, chooser, 1)
    world.outlier_every = 0
    choices = drive(world, chooser, 100)
    assert sum(choice.k == 0 for choice in choices) <= 4
    assert choices[-1].k >= 4


def tries_cost_a_hundredth_at_most():
    for settings in (LOST, HOPELESS["bound by computing"]):
        world = World(**settings)
        chooser = controller()
        drive(world, chooser, 400)  # to know the world at first
        num_rounds, num_drafted = 5000, 0
        for _ in range(num_rounds):
            report = world.round(chooser.choose(world.num_rows))
            num_drafted += any(row.drafter == "draft" for row in report.rows)
            chooser.observe(report)
        assert num_drafted <= num_rounds / 100, (settings, num_drafted)


def gives_the_draft_another_chance():
    world = World(acceptance=0.02, step_ms=3.0)
    chooser = controller()
    choices = drive(world, chooser, 8000)
    assert any(choice.reason == "probe" for choice in choices)
    last = [choice for choice in choices[4000:] if choice.reason == "probe"]
    assert 0 < len(last) <= 40


def does_not_flap():
    """250 decisions in noise of 10 %, apart from the tries of what has aged."""
    for seed in (1, 2, 3):
        world = World(noise=0.1, acceptance=0.5, seed=seed)
        chooser = controller()
        drive(world, chooser, 500)
        choices = drive(world, chooser, 4000)
        settled = [choice.k for choice in choices if choice.reason != "untried"]
        changes = sum(a != b for a, b in pairwise(settled))
        assert changes <= 8, (seed, changes)


def copies_as_far_as_it_pays():
    free = World(ngram_acceptance=0.6)
    choice = drive(free, controller(has_draft=False), 200)[-1]
    assert (choice.k, choice.reason) == (0, "no-draft")
    assert choice.ngram_k >= 12
    dear = World(num_rows=16, fixed_ms=1, token_ms=1, ngram_acceptance=0.1)
    chooser = controller(has_draft=False)
    choices = drive(dear, chooser, 2000)
    assert Counter(choice.ngram_k for choice in choices[100:]).most_common(1)[0][0] == 0
    dear.ngram_acceptance = 0.98
    assert drive(dear, chooser, 3000)[-1].ngram_k > 0


def a_draft_without_luck_leaves_the_copies_alone():
    """What rows without its tokens copy of their past is not credited to the draft."""
    settings = {"acceptance": 0.05, "ngram_acceptance": 0.9, "token_ms": 0.3}
    world = World(**settings)
    chooser = controller()
    drive(world, chooser, 1000)
    late = late_rate(world, chooser, 1000)
    assert late >= 0.93 * best_rate(**settings)


PROMISES = [
    finds_the_best_in_lockstep,
    is_never_much_below_plain,
    a_rising_load_ends_drafting,
    falling_acceptance_ends_drafting,
    rising_acceptance_is_noticed,
    one_try_tells,
    each_load_keeps_its_choice,
    a_slower_verify_is_noticed,
    an_outlier_changes_no_choice,
    a_slow_first_round_is_no_reason_to_stop,
    tries_cost_a_hundredth_at_most,
    gives_the_draft_another_chance,
    does_not_flap,
    copies_as_far_as_it_pays,
    a_draft_without_luck_leaves_the_copies_alone,
]
