"""Replicas by their number or by the load, and those of an update."""

from typing import Any

import pytest

from outrider.actors.errors import InvalidConfig
from outrider.cluster.config.config import ClusterSection
from outrider.cluster.deploy.sizing import most_replicas, num_surging, replicas_on, scaling_options


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


@pytest.mark.parametrize(
    ("node", "num_replicas", "expected"),
    [
        ({"CPU": 3.0}, 4, 1),  # a pod, of four
        ({"CPU": 4.0}, 1, 1),  # a machine of its own
        ({"CPU": 64.0, "GPU": 8.0}, 4, 4),  # all on one
        ({"CPU": 64.0, "GPU": 5.0}, 4, 2),  # as GPUs go
        ({"CPU": 0.0}, 4, 1),
    ],
)
def test_replicas_share_the_machine_that_they_fit_on(
    node: dict[str, float], num_replicas: int, expected: int
) -> None:
    cluster = ClusterSection(num_replicas=num_replicas)
    gpu = {"GPU": 1.0} if "GPU" in node else {}
    bundles = [{"CPU": 1.0}, {"CPU": 1.0} | gpu, {"CPU": 1.0} | gpu]
    assert replicas_on(node, bundles, cluster) == expected
