"""Sources in their order, and refusals in the operator's own words."""

from pathlib import Path
from typing import Any

import pytest

from outrider.actors.errors import InvalidConfig
from outrider.actors.spec_decode.drafters.registry import USUAL_DRAFTERS
from outrider.cluster.api.service import ApiLimits
from outrider.cluster.config.config import Config
from outrider.cluster.config.demo_models import demo_head
from outrider.cluster.config.sources import Setting, fields, from_assignments, load
from outrider.cluster.deploy.launch import check_keys, for_this_machine, requiring_keys
from outrider.cluster.deploy.settings import api_limits, engine_config, max_requests, policy
from outrider.cluster.models.local_models import with_local_models
from outrider.cluster.terminal.flags.config_flags import load_config


def write(folder: Path, text: str) -> Path:
    path = folder / "outrider.yaml"
    path.write_text(text)
    return path


def flag(value: str) -> Setting:
    return Setting(value, "--k", is_text=True)


def test_no_source_gives_the_defaults() -> None:
    assert load(None, {"HOME": "/root"}, {}) == Config()


def test_later_sources_win(tmp_path: Path) -> None:
    file = write(tmp_path, "engine: {k: 1, max_batch: 2}\nhttp: {port: 9000}\nmodel:\n")
    env = {"OUTRIDER_ENGINE_K": "2", "OUTRIDER_HTTP_PORT": "9001"}
    config = load(file, env, {"engine.k": flag("3")})
    assert (config.engine.k, config.http.port, config.engine.max_batch) == (3, 9001, 2)
    assert load(file, env, {}).engine.k == 2
    assert load(file, {}, {}).engine.k == 1
    assert load(None, {"OUTRIDER_CONFIG": str(file)}, {}).engine.k == 1


def test_set_reaches_every_key(tmp_path: Path) -> None:
    assignments = ["cluster.worker_gpus=0.5", f"cluster.temp_dir={tmp_path}", "model.draft=none"]
    config = load(None, {}, from_assignments(assignments))
    assert (config.cluster.worker_gpus, config.cluster.temp_dir) == (0.5, tmp_path)
    assert config.model.draft_path is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("engin: {k: 1}", "unknown key engin from .*; did you mean engine"),
        ("engine: {kk: 1}", "unknown key engine.kk .*; did you mean engine.k"),
        ("engine: {is_paired: true}", "Got engine.is_paired .* called engine.is_colocated"),
        ("engine: {has_ngram: false}", "Got engine.has_ngram .* called engine.drafters"),
        ("engine: {drafters: [medium]}", "Got the drafter 'medium', accepted: prediction, draft"),
        ("engine: {drafters: [draft, draft]}", "Got the drafter 'draft' twice"),
        ("engine: {drafters: ['ngram:/tmp']}", "Got the drafter 'ngram:/tmp', expected ngram"),
        ("engine: {drafters: 7}", "Got engine.drafters=7 .*, expected names among prediction"),
        ("engine: {k: 17}", "Got engine.k=17 from .*outrider.yaml, expected 0 ≤ k ≤ 16"),
        ("engine: {k: true}", "Got engine.k=True"),
        ("engine: {k: 1.5}", "Got engine.k=1.5"),
        ("engine: {numerics: bitwise}", "expected 'auto', 'exact' or 'fast'"),
        ("http: {port: 65536}", "1 ≤ port ≤ 65535"),
        ("cluster: {worker_gpus: -1}", "at least 0, or 'auto'"),
        ("[1, 2]", "expected names with values"),
        ("engine: 4", "expected names with values"),
        ("engine: {k: [", "is not YAML"),
    ],
)
def test_a_bad_file(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        load(write(tmp_path, text), {}, {})


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"Cannot read .*nowhere.yaml: No such file"):
        load(tmp_path / "nowhere.yaml", {}, {})


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"OUTRIDER_ENGINE_KK": "1"}, "OUTRIDER_ENGINE_KK .*did you mean OUTRIDER_ENGINE_K"),
        ({"OUTRIDER_ENGINE_K": "many"}, "engine.k='many' from OUTRIDER_ENGINE_K, expected 0"),
    ],
)
def test_a_bad_environment(env: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        load(None, env, {})


def test_what_begins_as_a_key_and_is_none() -> None:
    ours = {"OUTRIDER_FORK_SERVER": "/tmp/fork", "OUTRIDER_API_KEYS": "secret"}
    assert load(None, ours, {}) == Config()


@pytest.mark.parametrize("assignment", ["engine.k", "engine.q=1", "k=1"])
def test_a_bad_assignment(assignment: str) -> None:
    with pytest.raises(InvalidConfig, match=r"section\.key=value|did you mean|expected among"):
        load(None, {}, from_assignments([assignment]))


@pytest.mark.parametrize(
    ("model", "target", "draft", "name"),
    [
        ({}, "target", "draft", "demo"),
        ({"draft": "none"}, "target", None, "demo"),
        ({"target": "/models/big"}, "big", None, "big"),
        ({"target": "/models/big", "draft": "/models/small"}, "big", "small", "big"),
        ({"target": "/models/big", "name": "mine"}, "big", None, "mine"),
    ],
)
def test_models_resolve(model: dict[str, Any], target: str, draft: str | None, name: str) -> None:
    resolved = Config.model_validate({"model": model}).model
    assert resolved.target_path.name == target
    assert (resolved.draft_path and resolved.draft_path.name) == draft
    assert resolved.served_name == name


@pytest.mark.parametrize(
    ("drafters", "draft", "head"),
    [
        (["eagle3"], None, "eagle3"),
        (["medusa"], None, "medusa"),
        (["medusa:/heads/mine"], None, "mine"),
        (["early_exit:9"], None, None),
        (["ngram"], "draft", None),
    ],
)
def test_a_head_takes_the_place_of_a_draft(
    drafters: list[str], draft: str | None, head: str | None
) -> None:
    config = load_config(None, None, drafters=drafters)
    assert config.engine.drafters[:4] == USUAL_DRAFTERS
    assert (config.draft_path and config.draft_path.name) == draft
    assert (config.head_path and config.head_path.name) == head
    if config.engine.head:
        with pytest.raises(InvalidConfig, match="and the draft model demo, accepted: one of them"):
            load_config(None, None, drafters=drafters, draft="demo")
    if head in ("eagle3", "medusa"):
        found = with_local_models(config, print).engine.head
        assert found == f"{head}:{demo_head(head)}"


def test_the_demo_pair_is_there() -> None:
    for path in (Config().model.target_path, Config().model.draft_path):
        assert path is not None
        assert (path / "config.json").is_file()


def test_the_front_takes_what_the_operator_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text("alice: sk-alice-0001\n")
    monkeypatch.setenv("OUTRIDER_API_KEYS", "bob=sk-bob-000001")
    env = {"OUTRIDER_API_KEYS": "bob=sk-bob-000001", "OUTRIDER_HTTP_MAX_CHOICES": "3"}
    given = [
        f"http.api_keys_file={keys}",
        "http.cors_origins=https://a.example, https://b.example",
        "http.request_timeout_s=5",
        "engine.max_waiting=6",
        "engine.has_prefix_cache=false",
        "http.isolates_cache_by_key=true",
    ]
    config = load(None, env, from_assignments(given))
    chosen = policy(config)
    found = [chosen.keys.find(secret) for secret in ("sk-alice-0001", "sk-bob-000001")]
    assert [key and key.name for key in found] == ["alice", "bob"]
    assert chosen.isolates_cache_by_key
    assert not engine_config(config).options.has_prefix_cache
    assert chosen.cors_origins == ("https://a.example", "https://b.example")
    assert (chosen.request_timeout_s, chosen.max_requests) == (
        5,
        256 + 6,
    )  # a GPU decodes 256
    assert max_requests(load(None, {}, from_assignments(["http.max_requests=2"]))) == 2
    assert api_limits(config).max_choices == 3
    assert api_limits(Config()) == ApiLimits()


def test_nothing_can_be_kept_apart_by_keys_that_are_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OUTRIDER_API_KEYS", raising=False)
    config = load(None, {}, from_assignments(["http.isolates_cache_by_key=true"]))
    with pytest.raises(InvalidConfig, match="isolates_cache_by_key=true without API keys"):
        policy(config)


def test_a_server_that_was_given_keys_opens_no_cluster_that_lacks_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The keys are here, and the replica's machine, which reads its own environment, has none."""
    joined = load(None, {}, from_assignments(["cluster.address=auto"]))
    assert not requiring_keys(joined, {}).http.requires_keys
    given = requiring_keys(joined, {"OUTRIDER_API_KEYS": "bob=sk-bob-000001"})
    monkeypatch.delenv("OUTRIDER_API_KEYS", raising=False)
    with pytest.raises(InvalidConfig, match="no API keys where a replica runs, expected OUTRIDER"):
        policy(given)
    monkeypatch.setenv("OUTRIDER_API_KEYS", "bob=sk-bob-000001")
    assert policy(given).keys


@pytest.mark.parametrize("address", ["local", "auto"])
def test_all_the_network_is_let_in_only_by_name(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    def checked(*assignments: str) -> list[str]:
        said: list[str] = []
        given = [f"cluster.address={address}", *assignments]
        check_keys(load(None, {}, from_assignments(given)), said.append)
        return said

    monkeypatch.delenv("OUTRIDER_API_KEYS", raising=False)
    with pytest.raises(InvalidConfig, match=r"Got http\.host=0\.0\.0\.0 without API keys"):
        checked("http.host=0.0.0.0")
    (line,) = checked("http.host=0.0.0.0", "http.allows_anonymous=true")
    assert line.startswith("no API keys: whoever reaches 0.0.0.0:8000 may use the server")
    assert checked("http.host=0.0.0.0", "http.requires_keys=true") == []
    assert checked("http.host=127.0.0.1") == []
    monkeypatch.setenv("OUTRIDER_API_KEYS", "bob=sk-bob-000001")
    assert checked("http.host=0.0.0.0") == []


def test_a_server_on_loopback_is_asked_under_its_names_alone() -> None:
    assert policy(Config()).allowed_hosts == frozenset()
    assert policy(for_this_machine(Config())).allowed_hosts == {"127.0.0.1", "localhost", "::1"}
    for given in ("http.allowed_hosts=My.Name, localhost", "http.host=0.0.0.0"):
        config = load(None, {}, from_assignments([given]))
        assert for_this_machine(config) == config
    assert policy(
        load(None, {}, from_assignments(["http.allowed_hosts=My.Name, b"]))
    ).allowed_hosts == {"my.name", "b"}


def test_every_key_says_what_it_accepts() -> None:
    assert all(field.description for field in fields().values())


def test_a_renamed_variable_names_the_new_one() -> None:
    with pytest.raises(InvalidConfig, match="is now called OUTRIDER_ENGINE_IS_COLOCATED"):
        load(None, {"OUTRIDER_ENGINE_IS_PAIRED": "true"}, {})
