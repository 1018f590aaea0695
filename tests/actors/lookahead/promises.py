"""What the adaptive controller promises, each as a check in worlds whose best choice is known."""

from collections import Counter
from itertools import pairwise

from actors.lookahead.worlds import World, best_rate, drive, plain_rate

from outrider.actors.lookahead.adaptive import AdaptiveController
from outrider.actors.lookahead.controller import Pipeline

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
FORECAST = {
    "one row": {},
    "poor forks": {
        "acceptance": 0.5,
        "hit": 0.7,
        "fixed_ms": 3.8,
        "token_ms": 0.07,
        "step_ms": 0.55,
        "step_token_ms": 0.012,
    },
    "a batch": {
        "num_rows": 8,
        "acceptance": 0.6,
        "hit": 0.75,
        "fixed_ms": 5,
        "token_ms": 0.06,
        "step_ms": 0.6,
        "step_token_ms": 0.01,
    },
    "the fewer guesses, the longer the branch": {
        "acceptance": 0.95,
        "hit": 0.95,
        "fixed_ms": 8.0,
        "token_ms": 0.35,
        "step_ms": 0.9,
        "step_token_ms": 0.04,
    },
    "few branches grow": {
        "acceptance": 0.9,
        "hit": 0.8,
        "fixed_ms": 8.0,
        "token_ms": 0.2,
        "step_ms": 0.4,
        "step_token_ms": 0.2,
        "fullness": 0.1,
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
    "a draft that is never in time": {"step_ms": 13.0, "acceptance": 0.6},
}
LOST = {"acceptance": 0.02, "step_ms": 4.0, "token_ms": 1.0}


def controller(world, k=4, **kwargs):
    return AdaptiveController(k, world.pipeline, **kwargs)


def late_rate(world, chooser, num_rounds):
    """Tokens per second from here on."""
    tokens, clock_ms = world.num_tokens, world.clock_ms
    drive(world, chooser, num_rounds)
    return 1000 * (world.num_tokens - tokens) / (world.clock_ms - clock_ms)


def finds_the_best(pipeline, **settings):
    best = best_rate(pipeline=pipeline, **settings)
    for noise in (0.0, 0.1):
        world = World(pipeline, noise=noise, **settings)
        chooser = controller(world)
        drive(world, chooser, 400)
        assert world.num_tokens / world.clock_ms * 1000 >= 0.88 * best
        late = late_rate(world, chooser, 2000)
        assert late >= 0.95 * best, (noise, late / best)


def finds_the_best_in_lockstep():
    for settings in LOCKSTEP.values():
        finds_the_best(Pipeline.LOCKSTEP, **settings)


def finds_the_best_in_forecast():
    for settings in FORECAST.values():
        finds_the_best(Pipeline.FORECAST, **settings)


def is_never_much_below_plain():
    """From the first round on, over a run of some ten thousand tokens a row."""
    for pipeline in Pipeline:
        for name, settings in HOPELESS.items():
            world = World(pipeline, noise=0.05, **settings)
            chooser = controller(world)
            drive(world, chooser, 3000)
            reached = 1000 * world.num_tokens / world.clock_ms
            share = reached / plain_rate(pipeline=pipeline, **settings)
            assert share >= 0.98, (pipeline, name, share)


CROWDED = {
    "num_rows": 32,
    "acceptance": 0.5,
    "hit": 0.75,
    "fixed_ms": 2.5,
    "token_ms": 0.06,
    "step_ms": 0.8,
    "step_token_ms": 0.01,
    "noise": 0.08,
    "drift": 0.25,
}


def what_the_draft_costs_the_target_is_noticed():
    """Draft and target share a machine whose speed wanders more than drafting wins or loses."""
    for seed in (2, 3):
        for company in (1.3, 1.5):
            world = World(Pipeline.FORECAST, **CROWDED, company=company, seed=seed)
            drive(world, controller(world), 3000)
            plain = World(Pipeline.FORECAST, **CROWDED, seed=seed)
            drive(plain, controller(plain, has_draft=False), 3000)
            share = world.num_tokens / world.clock_ms / (plain.num_tokens / plain.clock_ms)
            assert share >= 0.97, (seed, company, share)


def a_rising_load_ends_drafting():
    """One row may draft freely, 64 rows are bound by computing, and back again."""
    for pipeline in Pipeline:
        world = World(pipeline, fixed_ms=3, token_ms=0.1, step_ms=0.4, acceptance=0.5)
        chooser = controller(world)
        assert drive(world, chooser, 200)[-1].k > 0
        world.num_rows = 64
        choices = drive(world, chooser, 200)
        assert Counter(choice.k for choice in choices[40:]).most_common(1)[0][0] == 0
        world.num_rows = 1
        assert drive(world, chooser, 200)[-1].k > 0


def falling_acceptance_ends_drafting():
    world = World(Pipeline.LOCKSTEP, acceptance=0.9)
    chooser = controller(world)
    assert drive(world, chooser, 300)[-1].k >= 4
    world.acceptance = 0.05
    choices = drive(world, chooser, 1500)
    assert Counter(choice.k for choice in choices[300:]).most_common(1)[0][0] == 0


def rising_acceptance_is_noticed():
    """By a controller that had learned for long how poor the draft is, and gave up for long."""
    for pipeline in Pipeline:
        settings = {"step_ms": 3.0} if pipeline is Pipeline.LOCKSTEP else {"token_ms": 0.5}
        world = World(pipeline, acceptance=0.9, num_rows=4, **settings)
        chooser = controller(world)
        assert drive(world, chooser, 1000)[-1].k > 0
        world.acceptance = 0.02
        assert drive(world, chooser, 8000)[-1].k == 0
        world.acceptance = 0.9
        drive(world, chooser, 8000)
        assert drive(world, chooser, 100)[-1].k >= 3


def one_try_tells():
    """However much was known of the draft before it became good again."""
    world = World(Pipeline.FORECAST, acceptance=0.9, num_rows=16, token_ms=0.5)
    chooser = controller(world)
    drive(world, chooser, 1000)
    world.acceptance = 0.02
    assert drive(world, chooser, 700)[-1].k == 0
    world.acceptance = 0.9
    while drive(world, chooser, 1)[0].reason != "probe":
        pass
    assert drive(world, chooser, 60)[-1].k >= 2


def each_load_keeps_its_choice():
    """Many rows and one, in turns shorter than it takes to decide anew."""
    world = World(Pipeline.LOCKSTEP, fixed_ms=3, token_ms=0.1, step_ms=0.4, acceptance=0.5)
    chooser = controller(world)
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
    world = World(Pipeline.LOCKSTEP, acceptance=0.8, fixed_ms=4.0, step_ms=2.0)
    chooser = controller(world)
    before = drive(world, chooser, 500)[-1].k
    world.fixed_ms = 40.0
    assert drive(world, chooser, 1500)[-1].k >= before + 3


def an_outlier_changes_no_choice():
    """Whenever it comes: at a decision, too."""
    for pipeline in Pipeline:
        calm = World(pipeline)
        expected = drive(calm, controller(calm), 500)
        for every in range(400, 417):
            odd = World(pipeline, outlier_every=every)
            assert drive(odd, controller(odd), 500) == expected


def a_slow_first_round_is_no_reason_to_stop():
    """Kernels are compiled, caches are cold."""
    world = World(Pipeline.LOCKSTEP, outlier_every=1)
    chooser = controller(world)
    drive(world, chooser, 1)
    world.outlier_every = 0
    choices = drive(world, chooser, 100)
    assert sum(choice.k == 0 for choice in choices) <= 4
    assert choices[-1].k >= 4


def tries_cost_a_hundredth_at_most():
    for pipeline in Pipeline:
        for settings in (LOST, HOPELESS["bound by computing"]):
            world = World(pipeline, **settings)
            chooser = controller(world)
            drive(world, chooser, 400)  # to know the world at first
            num_rounds, num_drafted = 5000, 0
            for _ in range(num_rounds):
                report = world.round(chooser.choose(world.num_rows))
                num_drafted += any(row.drafter == "draft" for row in report.rows)
                chooser.observe(report)
            assert num_drafted <= num_rounds / 100, (pipeline, settings, num_drafted)


def gives_the_draft_another_chance():
    world = World(Pipeline.LOCKSTEP, acceptance=0.02, step_ms=3.0)
    chooser = controller(world)
    choices = drive(world, chooser, 8000)
    assert any(choice.reason == "probe" for choice in choices)
    last = [choice for choice in choices[4000:] if choice.reason == "probe"]
    assert 0 < len(last) <= 40


def does_not_flap():
    """250 decisions in noise of 10 %, apart from the tries of what has aged."""
    for pipeline in Pipeline:
        for seed in (1, 2, 3):
            world = World(pipeline, noise=0.1, acceptance=0.5, seed=seed)
            chooser = controller(world)
            drive(world, chooser, 500)
            choices = drive(world, chooser, 4000)
            settled = [choice for choice in choices if choice.reason != "untried"]
            shapes = [(choice.k, choice.num_branches) for choice in settled]
            changes = sum(a != b for a, b in pairwise(shapes))
            assert changes <= 8, (pipeline, seed, changes)


def width_shrinks_with_the_batch():
    """A draft that pays for each branch affords fewer of them per sequence in a batch."""
    settings = {"hit": 0.7, "fixed_ms": 5, "step_ms": 0.6, "step_token_ms": 0.02}
    world = World(Pipeline.FORECAST, **settings)
    chooser, widths = controller(world), []
    for world.num_rows in (1, 16):
        choice = drive(world, chooser, 600)[-1]
        widths.append(choice.num_branches / (choice.k + 1))
    assert widths[0] > widths[1] >= 1


def copies_as_far_as_it_pays():
    free = World(Pipeline.LOCKSTEP, ngram_acceptance=0.6)
    choice = drive(free, controller(free, has_draft=False), 200)[-1]
    assert (choice.k, choice.num_branches, choice.reason) == (0, 0, "no-draft")
    assert choice.ngram_k >= 12
    dear = World(Pipeline.LOCKSTEP, num_rows=16, fixed_ms=1, token_ms=1, ngram_acceptance=0.1)
    chooser = controller(dear, has_draft=False)
    choices = drive(dear, chooser, 2000)
    assert Counter(choice.ngram_k for choice in choices[100:]).most_common(1)[0][0] == 0
    dear.ngram_acceptance = 0.98
    assert drive(dear, chooser, 3000)[-1].ngram_k > 0


def a_token_is_asked_to_be_worth_its_place():
    """As likely as the tokens that are made in the time that it takes."""
    for token_ms in (0.0, 0.05, 0.2):
        world = World(Pipeline.FORECAST, token_ms=token_ms, acceptance=0.8)
        chooser = controller(world)
        choice = drive(world, chooser, 1000)[-1]
        price = token_ms / 1000 * late_rate(world, chooser, 400)
        assert choice.k > 0
        assert abs(choice.min_chance - price) <= 0.1 * price, (token_ms, choice, price)


def a_draft_without_luck_leaves_the_copies_alone():
    """Rows without a branch copy their past; what that yields is not credited to the draft."""
    settings = {"acceptance": 0.05, "ngram_acceptance": 0.9, "token_ms": 0.3}
    world = World(Pipeline.FORECAST, **settings)
    chooser = controller(world)
    drive(world, chooser, 1000)
    late = late_rate(world, chooser, 1000)
    assert late >= 0.93 * best_rate(pipeline=Pipeline.FORECAST, **settings)


PROMISES = [
    finds_the_best_in_lockstep,
    finds_the_best_in_forecast,
    is_never_much_below_plain,
    what_the_draft_costs_the_target_is_noticed,
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
    width_shrinks_with_the_batch,
    copies_as_far_as_it_pays,
    a_token_is_asked_to_be_worth_its_place,
    a_draft_without_luck_leaves_the_copies_alone,
]
