"""What is learned of durations: robust where it was measured, hopeful where it was not."""

import random

import pytest

from outrider.actors.lookahead.latency_curve import MAX_AGE, Level, TimeCurve


def curve_of(points, round_=0, times=3):
    curve = TimeCurve()
    for num_tokens, seconds in points:
        for _ in range(times):
            curve.add(num_tokens, seconds, round_)
    curve.refresh(round_)
    return curve


def test_a_level_is_false_until_it_knows():
    level = Level()
    assert not level
    level.add(0.0)
    assert level


@pytest.mark.parametrize("outliers", [[200.0], [200.0, 0.001], [200.0, 200.0]])
@pytest.mark.parametrize("num_before", [3, 5, 50])
def test_two_outliers_leave_a_level_where_it_was(outliers, num_before):
    level = Level()
    for value in [4.0] * num_before + outliers + [4.0] * 10:
        level.add(value)
    assert level.value == pytest.approx(4.0)


def test_a_level_forgets_a_bad_start():
    level = Level()
    for value in [200.0, 4.0, 4.0]:
        level.add(value)
    assert level.value == 4.0


def test_a_level_follows_what_stays():
    level = Level()
    for value in [4.0] * 50 + [10.0] * 60:
        level.add(value)
    assert level.value == pytest.approx(10.0, rel=0.05)


def test_a_level_averages_noise():
    source, level = random.Random(1), Level()
    values = []
    for _ in range(2000):
        level.add(source.gauss(10, 1))
        values.append(level.value)
    spread = [abs(value - 10) for value in values[100:]]
    assert max(spread) < 1  # 10 % of noise moves it by less than 10 % ever
    assert sum(spread) / len(spread) < 0.3


def test_between_points_it_is_straight_beyond_them_hopeful():
    curve = curve_of([(4, 0.010), (6, 0.010), (8, 0.014)])
    assert [curve.at(n) for n in (4, 5, 6, 7, 8)] == pytest.approx(
        [0.010, 0.010, 0.010, 0.012, 0.014]
    )
    assert curve.at(12) == pytest.approx(0.018)  # 0.001 a token from first to last
    assert curve.at(2) == pytest.approx(0.005)
    assert [curve.covers(n) for n in (2, 4, 6, 8, 12)] == [False, True, True, True, False]


def test_it_never_falls_beyond_its_last_point():
    assert curve_of([(4, 0.010), (8, 0.009)]).at(100) == pytest.approx(0.009)
    assert curve_of([(4, 0.010)]).at(100) == pytest.approx(0.010)


def test_nothing_known_costs_nothing():
    curve = TimeCurve()
    assert curve.at(5) == 0
    assert not curve.covers(5)


def test_what_was_not_refreshed_does_not_count_yet():
    curve = curve_of([(1, 1.0)])
    curve.add(16, 9.0, 1)
    assert curve.at(16) == 1.0
    curve.refresh(1)
    assert curve.at(16) == 9.0


def test_old_points_are_forgotten():
    curve = curve_of([(1, 1.0)])
    curve.add(16, 2.0, MAX_AGE + 1)
    curve.refresh(MAX_AGE)
    assert curve.at(1) == 1.0
    curve.refresh(MAX_AGE + 1)
    assert curve.at(1) == pytest.approx(2.0 / 16)


def test_memory_is_bounded_however_many_sizes_there_are():
    curve = curve_of([(n, 1.0) for n in range(1, 5000)], times=1)
    assert len(curve._cells) <= 48


def test_a_copy_lives_on_its_own():
    curve = curve_of([(4, 0.010), (8, 0.020)])
    other = curve.copy()
    other.refresh(0)
    assert other.at(6) == pytest.approx(curve.at(6))
    other.add(16, 1.0, 1)
    other.refresh(1)
    curve.refresh(1)
    assert curve.at(16) == pytest.approx(0.040)
    assert other.at(16) == 1.0
