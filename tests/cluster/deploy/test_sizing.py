"""Replicas by their number or by the load, and those of an update."""

from typing import Any

import pytest

from outrider.actors.errors import InvalidConfig
from outrider.cluster.config.config import ClusterSection
from outrider.cluster.deploy.sizing import most_replicas, num_surging, scaling_options


def section(**values: Any) -> ClusterSection:
    return ClusterSection.model_validate(values)


def test_a_fixed_number() -> None:
    assert scaling_options(section()) == {"num_replicas": 1, "max_surge_percent": 0}
    same = section(num_replicas=3, max_replicas=3, max_surge_percent=25)
    assert scaling_options(same) == {"num_replicas": 3, "max_surge_percent": 25}


def test_a_number_that_follows_the_load() -> None:
    options = scaling_options(section(num_replicas=2, max_replicas=5, target_requests=7))
    assert "num_replicas" not in options
    assert options["autoscaling_config"] == {
        "min_replicas": 2,
        "max_replicas": 5,
        "target_ongoing_requests": 7,
        "upscale_delay_s": 10.0,
        "downscale_delay_s": 300.0,
    }


@pytest.mark.parametrize(("percent", "most", "num"), [(0, 4, 0), (1, 4, 1), (25, 4, 1), (26, 4, 2)])
def test_an_update_takes_whole_replicas_more(percent: int, most: int, num: int) -> None:
    assert num_surging(section(max_replicas=most, max_surge_percent=percent)) == num


def test_the_most_are_no_less_than_the_least() -> None:
    with pytest.raises(InvalidConfig, match=r"Got cluster.max_replicas=2, expected at least .*, 3"):
        most_replicas(section(num_replicas=3, max_replicas=2))
