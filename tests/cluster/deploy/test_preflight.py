"""What is missing is said at once, with what was found and what was needed."""

import socket

import pytest

from outrider.actors.errors import InvalidConfig
from outrider.cluster.config.config import ClusterSection
from outrider.cluster.deploy.preflight import (
    check_nodes,
    check_port,
    local_resources,
    shortage,
)
from outrider.cluster.deploy.sizing import bundles_of

BUNDLES = [{"CPU": 1.0}, {"CPU": 1.0, "GPU": 1.0}, {"CPU": 1.0, "GPU": 1.0}]


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidConfig, match=f"Cannot listen on 127.0.0.1:{port} .*--port"):
            check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)


def test_a_host_that_does_not_resolve() -> None:
    with pytest.raises(InvalidConfig, match=r"http\.host=no\.such\.host\.invalid"):
        check_port("no.such.host.invalid", 8000)


def test_enough_machines_pass() -> None:
    check_nodes(BUNDLES, "STRICT_PACK", 1, [{"CPU": 3.0, "GPU": 2.0}])
    check_nodes(BUNDLES, "PACK", 1, [{"CPU": 2.0, "GPU": 1.0}] * 2)
    check_nodes([{"CPU": 0.1}] * 3, "STRICT_PACK", 1, [{"CPU": 0.3}])  # sums are not exact


@pytest.mark.parametrize(
    ("placement", "num_replicas", "nodes", "words"),
    [
        ("STRICT_PACK", 1, [], "no machine that is alive"),
        ("STRICT_PACK", 1, [{"CPU": 8.0, "GPU": 0.0}], "best of 1 lacks 2 GPU"),
        ("STRICT_PACK", 1, [{"CPU": 2.0, "GPU": 1.0}] * 2, "best of 2 lacks 1 CPU, 1 GPU"),
        ("PACK", 1, [{"CPU": 2.0, "GPU": 1.0}], "it lacks 1 CPU, 1 GPU"),
        ("STRICT_PACK", 2, [{"CPU": 4.0, "GPU": 2.0}], "6 CPU, 4 GPU in all .* lacks 2 CPU, 2 GPU"),
    ],
)
def test_too_few_machines(
    placement: str, num_replicas: int, nodes: list[dict[str, float]], words: str
) -> None:
    with pytest.raises(InvalidConfig, match=words):
        check_nodes(BUNDLES, placement, num_replicas, nodes)


@pytest.mark.parametrize(
    ("asked", "num_replicas", "num_gpus", "each"),
    [
        ("auto", 1, 0, 0),
        ("auto", 1, 1, 0.5),
        ("auto", 1, 2, 1),
        ("auto", 4, 4, 0.5),
        (2.0, 1, 0, 2),
    ],
)
def test_gpus_of_a_worker(
    asked: float | str, num_replicas: int, num_gpus: float, each: float
) -> None:
    config = ClusterSection.model_validate({"worker_gpus": asked, "num_replicas": num_replicas})
    coordinator, draft, target = bundles_of(config, num_gpus)
    assert coordinator == {"CPU": 1.0}
    assert draft == target
    assert draft.get("GPU", 0) == each


def test_a_local_cluster_holds_a_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    has = local_resources()
    assert has["GPU"] == 0
    assert not shortage({"CPU": 3.0}, has)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert local_resources()["GPU"] == 2


def test_words_are_for_people() -> None:
    with pytest.raises(InvalidConfig) as refused:
        check_nodes(BUNDLES, "STRICT_PACK", 1, [{"CPU": 4.0, "GPU": 1.0}])
    assert "needs 3 CPU, 2 GPU on one machine" in str(refused.value)
    assert "cluster.placement=PACK" not in str(refused.value)  # one machine: nowhere to spread to
    with pytest.raises(InvalidConfig, match=r"cluster\.placement=PACK"):
        check_nodes(BUNDLES, "STRICT_PACK", 1, [{"CPU": 4.0, "GPU": 1.0}] * 2)
