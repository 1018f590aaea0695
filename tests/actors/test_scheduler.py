"""Admission by pages and the token budget of a round."""

import pytest

from outrider.actors.errors import InvalidRequest, Overloaded
from outrider.actors.request import Request
from outrider.actors.sampling import MAX_K, SamplingParams
from outrider.actors.scheduler import MIN_CHUNK, Limits, Scheduler
from outrider.actors.sequence import Event, Sequence, State


def scheduler(num_pages=100, max_batch=8, max_waiting=4, token_budget=64):
    return Scheduler(Limits(num_pages, 16, max_batch, max_waiting, token_budget))


def sequence(seq, prompt_len=4, max_tokens=12, tenant=""):
    sampling = SamplingParams(max_tokens=max_tokens)
    request = Request((1,) * prompt_len, sampling, seed=0, tenant=tenant)
    return Sequence(seq, request, prompt_len + max_tokens)


def test_admission_is_in_order_and_stops_where_pages_would_run_out():
    subject = scheduler(num_pages=5)  # a sequence of 16 and a proposal of 16 takes two
    sequences = [sequence(i) for i in range(3)]
    for each in sequences:
        subject.add(each)
    assert subject.admit() == sequences[:2]
    assert subject.admit() == []
    subject.remove(sequences[0])
    assert subject.admit() == sequences[2:]


def test_tenants_take_turns():
    subject = scheduler(max_batch=3, max_waiting=99)
    greedy, modest = [sequence(i, tenant="a") for i in range(5)], sequence(9, tenant="b")
    for each in (*greedy, modest):
        subject.add(each)
    assert subject.admit() == [greedy[0], modest, greedy[1]]
    subject.remove(modest)
    late = sequence(10, tenant="b")
    subject.add(late)
    assert subject.admit() == [late]


def test_prompts_progress_beside_rows_that_could_take_the_whole_budget():
    subject = scheduler(token_budget=64)
    decoding = sequence(1)
    subject.add(decoding)
    subject.admit()
    decoding.num_prefilled = 3
    decoding.apply(Event.PREFILLED)
    new = sequence(2, prompt_len=100)
    subject.add(new)
    subject.admit()
    assert subject.plan(k=99).prefill == [(new, MIN_CHUNK)]


def test_a_batch_is_bounded():
    subject = scheduler(max_batch=2)
    for i in range(3):
        subject.add(sequence(i))
    assert len(subject.admit()) == 2


def test_a_request_that_could_never_run_is_refused_at_once():
    subject = scheduler(num_pages=4)
    subject.check(4 * 16 - MAX_K)
    with pytest.raises(InvalidRequest, match=r"Got 49 tokens of prompt and output.*holds 48"):
        subject.check(4 * 16 - MAX_K + 1)


def test_the_queue_is_bounded():
    subject = scheduler(max_waiting=1)
    subject.add(sequence(1))
    with pytest.raises(Overloaded, match="Got a request with 1 waiting, accepted 1"):
        subject.check(16)


def test_removing_gives_back_exactly_what_was_reserved():
    subject = scheduler(num_pages=4)
    for round_ in range(5):
        each = sequence(round_, max_tokens=44)
        subject.add(each)
        assert subject.admit() == [each]
        subject.remove(each)


def test_decoding_rows_come_first_and_prompts_share_what_is_left():
    subject = scheduler(token_budget=64)
    decoding, short, long = sequence(1), sequence(2, prompt_len=10), sequence(3, prompt_len=500)
    for each in (decoding, short, long):
        subject.add(each)
    subject.admit()
    decoding.apply(Event.PREFILLED)
    plan = subject.plan(k=3)
    assert plan.rows == [decoding, short]  # a prompt that fits gets its verdict at once
    ((prefilled, size),) = plan.prefill
    assert prefilled is long
    assert 4 + (9 + 4) + size == 64
    assert long.state is State.PREFILLING
    assert long.num_prefilled == 0  # planning changes nothing


def test_a_full_batch_still_lets_one_prompt_move():
    subject = scheduler(token_budget=6)
    long = sequence(1, prompt_len=100)
    subject.add(long)
    subject.admit()
    ((_, size),) = subject.plan(k=3).prefill
    assert size == MIN_CHUNK
