"""Admission by pages and turn, preemption, and the token budget of a round."""

import pytest

from outrider.actors.errors import Overloaded
from outrider.actors.scheduling.request import Request
from outrider.actors.scheduling.sampling_params import MAX_K, SamplingParams
from outrider.actors.scheduling.scheduler import (
    AGING_S,
    MAX_ROW_NODES,
    MAX_TOLD,
    MIN_CHUNK,
    Scheduler,
    SchedulerConfig,
    told_k,
)
from outrider.actors.scheduling.sequence import Event, Sequence, State


def scheduler(num_pages=100, max_batch=8, max_waiting=4, token_budget=64, **limits):
    return Scheduler(SchedulerConfig(num_pages, 16, max_batch, max_waiting, token_budget, **limits))


def sequence(
    seq_id,
    prompt=4,
    max_tokens=12,
    queued_at=0.0,
    prompt_logprobs=None,
    num_top_logprobs=0,
    **request,
):
    """Prompts of other sequences begin differently; `prompt` is one, or its length."""
    ids = prompt if isinstance(prompt, tuple) else (seq_id,) + (1,) * (prompt - 1)
    sampling = SamplingParams(
        max_tokens=max_tokens, prompt_logprobs=prompt_logprobs, num_top_logprobs=num_top_logprobs
    )
    made = Sequence(seq_id, Request(ids, sampling, seed=0, **request), len(ids) + max_tokens)
    made.queued_at = queued_at
    return made


def admitted(subject, num_free=100, now=0.0):
    """Who is admitted, the target having the pages of none of them."""
    return subject.admit(now, num_free)


def decoding(subject, each):
    each.num_prefilled = each.num_committed - 1
    each.apply(Event.PREFILLED)
    return each


def test_admission_is_in_order_and_leaves_a_page_to_grow_into():
    subject = scheduler(num_pages=5)  # a text of 4 and a proposal of 16 take two
    sequences = [sequence(i) for i in range(3)]
    for each in sequences:
        subject.add(each)
    assert admitted(subject, num_free=5) == sequences[:2]
    assert admitted(subject, num_free=5) == []
    subject.remove(sequences[0])
    assert admitted(subject, num_free=5) == sequences[2:]


def test_a_sequence_begins_by_the_text_it_has_not_by_what_it_may_become():
    subject = scheduler(num_pages=100)
    for each in (long := [sequence(i, max_tokens=1000) for i in range(8)]):
        subject.add(each)
    assert admitted(subject) == long


def test_tenants_take_turns():
    subject = scheduler(max_batch=3, max_waiting=99)
    greedy, modest = [sequence(i, tenant="a") for i in range(5)], sequence(9, tenant="b")
    for each in (*greedy, modest):
        subject.add(each)
    assert admitted(subject) == [greedy[0], modest, greedy[1]]
    subject.remove(modest)
    late = sequence(10, tenant="b")
    subject.add(late)
    assert admitted(subject) == [late]


def test_priority_goes_before_turns_and_waiting_is_worth_priority():
    subject = scheduler(max_batch=1)
    low, high = sequence(1, priority=1), sequence(2, queued_at=9.0, tenant="b")
    for each in (low, high):
        subject.add(each)
    assert admitted(subject, now=9.0) == [high]
    subject.remove(high)
    later = sequence(3, queued_at=AGING_S + 1)
    subject.add(later)
    assert admitted(subject, now=AGING_S + 1) == [low]  # as important by now, and older


def test_whoever_does_not_fit_is_not_overtaken():
    subject = scheduler()
    running, large, small = sequence(1), sequence(2, prompt=400), sequence(3)
    subject.add(running)
    assert admitted(subject) == [running]
    for each in (large, small):
        subject.add(each)
    assert admitted(subject, num_free=20) == []


def test_the_newest_of_the_least_important_leaves_when_pages_run_out():
    subject = scheduler()
    first, low, high, new = (
        sequence(1), sequence(2, priority=1), sequence(3), sequence(4, queued_at=1.0)
    )  # fmt: skip
    for each in (low, first, high, new):
        subject.add(each)
    assert len(admitted(subject)) == 4
    for each in subject.running:
        decoding(subject, each)
    low.commit((7, 8))
    plan = subject.plan(k=4)
    assert subject.preempt(plan, num_free=4) is None  # one page more for each
    left = [subject.preempt(subject.plan(k=4), num_free=n) for n in (3, 2, 1, 0)]
    assert left == [low, new, high, None]  # one alone always goes on
    assert (low.state, low.num_to_prefill, low.output_ids) == (State.PREEMPTED, 5, [7, 8])
    subject.remove(first)
    assert admitted(subject) == [high, new, low]
    assert low.state is State.PREFILLING
    assert low.queued_s == 0.0  # of its first turn


SHARED = tuple(range(100))


@pytest.mark.parametrize(
    ("other", "waits"),
    [
        ({}, True),
        ({"prompt": (*SHARED[:15], 7, *SHARED[16:])}, False),
        ({"prompt": (*SHARED[:16], 7, *SHARED[17:])}, True),
        ({"cache_salt": "theirs"}, False),
        ({"prompt_logprobs": 0}, False),
        ({"prompt": SHARED[:16]}, False),  # its last id is computed by itself
        ({"prompt": SHARED[:17]}, True),
    ],
)
def test_who_begins_alike_waits_for_what_is_being_computed_and_lets_others_by(other, waits):
    subject = scheduler()
    first, stranger = sequence(1, prompt=SHARED), sequence(3, prompt=50)
    second = sequence(2, **{"prompt": SHARED} | other)
    for each in (first, second, stranger):
        subject.add(each)
    assert admitted(subject) == ([first, stranger] if waits else [first, second, stranger])
    first.num_prefilled = 96
    assert admitted(subject) == ([second] if waits else [])


def test_nobody_waits_for_pages_that_are_not_kept():
    subject = scheduler(has_prefix_cache=False)
    for each in (alike := [sequence(i, prompt=SHARED) for i in (1, 2)]):
        subject.add(each)
    assert admitted(subject) == alike


def test_shared_pages_are_counted_once():
    subject = scheduler(num_pages=20)
    first, second, stranger = (
        sequence(1, prompt=SHARED), sequence(2, prompt=SHARED), sequence(3, prompt=100)
    )  # fmt: skip
    subject.add(first)
    assert admitted(subject, num_free=10) == [first]
    decoding(subject, first)
    subject.add(stranger)
    assert admitted(subject, num_free=6) == []
    subject.remove(stranger)
    subject.add(second)
    assert admitted(subject, num_free=6) == [second]


def test_prompts_progress_beside_rows_that_could_take_the_whole_budget():
    subject = scheduler(token_budget=64)
    row = sequence(1)
    subject.add(row)
    admitted(subject)
    decoding(subject, row)
    new = sequence(2, prompt=100)
    subject.add(new)
    admitted(subject)
    assert subject.plan(k=99).prefill == [(new, MIN_CHUNK)]


def test_prompts_have_what_rows_are_expected_to_leave():
    """Not what they might leave: 30 rows that may draft 16 each might take all of it."""
    subject = scheduler(num_pages=400, token_budget=512, max_batch=64)
    rows = [sequence(at) for at in range(30)]
    for row in rows:
        subject.add(row)
        admitted(subject)
        decoding(subject, row)
    new = sequence(40, prompt=500)
    subject.add(new)
    admitted(subject)
    assert subject.plan(k=16).prefill == [(new, MIN_CHUNK)]
    assert subject.plan(k=16, num_drafted=2).prefill == [(new, 512 - 30 * 3)]


def test_a_batch_is_bounded():
    subject = scheduler(max_batch=2)
    for i in range(3):
        subject.add(sequence(i))
    assert len(admitted(subject)) == 2


def test_the_longest_sequence_has_room_for_the_longest_proposal():
    assert scheduler(num_pages=4).limits.max_len == 4 * 16 - MAX_K


def test_a_proposal_is_as_wide_as_there_are_pages_for():
    subject = scheduler()
    sequences = [sequence(i) for i in range(4)]
    for each in sequences:
        subject.add(each)
    admitted(subject)
    plan = subject.plan(4)
    assert (plan.num_nodes, len(plan.rows)) == (MAX_K, 4)
    assert subject.num_nodes(plan, 100) == MAX_ROW_NODES
    # 16 tokens of prompts take a page, and each row may begin two of its own.
    assert subject.num_nodes(plan, 1 + 2 * 4 + 4 * 3) == 3 * 16
    assert subject.num_nodes(plan, 0) == MAX_K  # that there is room for this is seen to before
    assert subject.num_nodes(subject.plan(0, []), 100) == MAX_ROW_NODES


def test_the_queue_is_bounded():
    subject = scheduler(max_waiting=1)
    subject.add(sequence(1))
    with pytest.raises(Overloaded, match="Got 1 choices with 1 waiting, accepted 1 together"):
        subject.check_room(1, "")


def test_an_answer_of_many_choices_finds_room_for_all_or_none():
    subject = scheduler(max_waiting=10)
    for i in range(4):
        subject.add(sequence(i))
    subject.check_room(6, "")
    with pytest.raises(Overloaded, match="Got 7 choices with 4 waiting, accepted 10 together"):
        subject.check_room(7, "")


def test_no_key_takes_more_than_half_the_queue():
    subject = scheduler(max_waiting=10)
    for i in range(4):
        subject.add(sequence(i, tenant="one"))
    subject.check_room(1, "one")
    with pytest.raises(Overloaded, match="Got 2 choices of the key 'one' with 4 of its own"):
        subject.check_room(2, "one")
    subject.check_room(5, "other")


class Read(tuple):
    """Ids that count how often a part of them is taken."""

    num_slices = 0

    def __getitem__(self, index):
        Read.num_slices += isinstance(index, slice)
        return super().__getitem__(index)


@pytest.mark.parametrize("is_shared", [True, False], ids=["choices", "alike"])
def test_waiting_prompts_are_not_gone_through_again(is_shared):
    """64 of 100,000 tokens, in each round that they wait: slices of them took seconds."""
    ids = Read(range(10_000))
    Read.num_slices = 0
    subject = scheduler(num_pages=8192, max_batch=64)
    for i in range(64):
        same = ids if is_shared else Read(ids)
        request = Request(same, SamplingParams(max_tokens=16), seed=1)
        subject.add(Sequence(i, request, len(ids) + 16))
    (first,) = subject.admit(0.0, 8192)
    first.opened(0)
    num_read = Read.num_slices
    assert num_read <= 10_000 // 16 * (1 if is_shared else 64)  # each page once
    for _ in range(20):
        assert subject.admit(0.0, 8000) == []  # they wait for the first one's pages
    assert Read.num_slices == num_read


def test_decoding_rows_come_first_and_prompts_share_what_is_left():
    subject = scheduler(token_budget=64)
    row, short, long = sequence(1), sequence(2, prompt=10), sequence(3, prompt=500)
    for each in (row, short, long):
        subject.add(each)
    admitted(subject)
    decoding(subject, row)
    plan = subject.plan(k=3)
    assert plan.rows == [row, short]  # a prompt that fits gets its verdict at once
    ((prefilled, size),) = plan.prefill
    assert prefilled is long
    assert 4 + (9 + 4) + size == 64
    assert long.state is State.PREFILLING
    assert long.num_prefilled == 0  # planning changes nothing


def test_a_full_batch_still_lets_one_prompt_move():
    subject = scheduler(token_budget=6)
    long = sequence(1, prompt=100)
    subject.add(long)
    admitted(subject)
    ((_, size),) = subject.plan(k=3).prefill
    assert size == MIN_CHUNK


def test_few_rows_of_a_round_are_told_of():
    """Prompts and texts together: each took a chunk of its own before."""
    subject = scheduler(num_pages=1000, token_budget=2048, max_batch=99, max_waiting=99)
    for i in range(3):
        subject.add(sequence(i, prompt=500, prompt_logprobs=20))
    telling = [sequence(10 + i, num_top_logprobs=5) for i in range(8)]
    for each in telling:
        subject.add(each)
    admitted(subject, num_free=1000)
    for each in telling:
        decoding(subject, each)
    assert [(s.seq_id, n) for s, n in subject.plan(k=0).prefill] == [(0, MAX_TOLD - 8)]
    assert [(s.seq_id, n) for s, n in subject.plan(k=3).prefill] == [(0, MAX_TOLD - 32)]
    # They draft as far as leaves room for that; one row at least goes on.
    assert told_k(8) == 7
    assert subject.plan(k=16).prefill == []
    assert told_k(0) == MAX_TOLD - 1
    assert told_k(64) == told_k(200) == 0


def test_a_prompt_that_is_told_of_goes_on_where_nobody_else_runs():
    subject = scheduler(num_pages=1000, token_budget=2048)
    subject.add(sequence(1, prompt=500, prompt_logprobs=0))
    admitted(subject, num_free=1000)
    assert [n for _, n in subject.plan(k=4).prefill] == [MAX_TOLD]


def test_choices_share_the_pages_of_the_one_that_is_told_of():
    subject = scheduler(num_pages=1000, token_budget=2048)
    teller = sequence(1, prompt=tuple(range(500)), prompt_logprobs=5)
    others = [sequence(i, prompt=tuple(range(500))) for i in (2, 3)]
    for each in (teller, *others):
        subject.add(each)
    assert admitted(subject, num_free=1000) == [teller]  # they wait for its pages
    teller.num_prefilled = 499
    assert admitted(subject, num_free=1000) == others[:1]
    others[0].opened(496)  # the teller's
    assert admitted(subject, num_free=1000) == others[1:]
    late = sequence(4, prompt=tuple(range(500)), prompt_logprobs=5)
    subject.add(late)
    teller.num_prefilled = 0
    assert admitted(subject, num_free=1000) == [late]  # it can use nobody's
