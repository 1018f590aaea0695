"""Ray Serve's proxy starts beside the replicas, and its failure is told as soon as it is known."""

import threading
import warnings
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import ray

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray Serve's own deprecations, at its first import
    from ray import serve

from outrider.actors.errors import OutriderError
from outrider.cluster.config.config import Config
from outrider.cluster.deploy import launch
from outrider.cluster.deploy.progress_board import ProgressBoard

PATIENCE_S = 20.0


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None], int], None]:
    """Ray Serve's start, and after how many looks its controller is there."""

    def of(start: Callable[[], None], looks: int) -> None:
        left = iter(range(looks))

        def get_actor(name: str, namespace: str) -> object:
            if next(left, None) is not None:
                raise ValueError(f"Got {name}, which is not there yet")
            return object()

        monkeypatch.setattr(serve, "start", lambda **options: start())
        monkeypatch.setattr(ray, "get_actor", get_actor)

    return of


def test_what_fails_before_there_is_a_controller(
    starts: Callable[[Callable[[], None], int], None],
) -> None:
    def start() -> None:
        raise ray.exceptions.RayError("no port")

    starts(start, 1_000_000)
    with pytest.raises(OutriderError, match="Ray Serve did not start: no port"):
        launch._start_proxy(Config())


def test_a_proxy_that_is_slow_is_not_waited_for(
    starts: Callable[[Callable[[], None], int], None],
) -> None:
    is_over = threading.Event()

    def start() -> None:
        assert is_over.wait(PATIENCE_S)
        raise TimeoutError("HTTP proxies not available")

    starts(start, 2)
    proxy = launch._start_proxy(Config())
    assert not proxy.done()
    launch._check_proxy(proxy)  # so far so good
    is_over.set()
    with pytest.raises(OutriderError, match="did not start: HTTP proxies not available"):
        launch._check_proxy(proxy, waits=True)


def test_what_ends_a_wait_of_rays_comes_as_it_was() -> None:
    with pytest.raises(KeyboardInterrupt), launch._serve_errors():
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()
    with pytest.raises(SystemError, match="its own"), launch._serve_errors():
        raise SystemError("its own")


def test_replicas_are_not_awaited_without_a_proxy(
    starts: Callable[[Callable[[], None], int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = threading.Event()

    def start() -> None:
        assert is_over.wait(PATIENCE_S)
        raise ray.exceptions.RayError("no port")

    board = ProgressBoard()
    read = SimpleNamespace(remote=board.read)
    monkeypatch.setattr(ray, "get", lambda found: is_over.set() or found)
    monkeypatch.setattr(serve, "status", lambda: SimpleNamespace(applications={}))
    starts(start, 0)
    config = Config()
    cluster = config.cluster.model_copy(update={"start_timeout_s": PATIENCE_S})
    config = config.model_copy(update={"cluster": cluster})
    proxy = launch._start_proxy(config)
    with pytest.raises(OutriderError, match="no port"):
        launch._await_replicas(config, SimpleNamespace(read=read), print, proxy)
