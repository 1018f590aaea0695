"""The commands: what they print, where, and how they end."""

import json
import os
import shutil
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outrider.cluster.cli import app
from outrider.cluster.config.demo_models import demo_draft, demo_head

runner = CliRunner()


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide, and without settings of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("OUTRIDER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "400")


def outrider(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "outrider.cluster.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_check_passes_on_the_demo() -> None:
    result = runner.invoke(app, ["check"])
    assert result.exit_code == 0, result.stderr
    assert result.stderr.count("✓") == 7
    assert "LlamaForCausalLM" in result.stderr


def test_check_of_what_does_not_need_this_machine(tmp_path: Path) -> None:
    file = tmp_path / "outrider.yaml"
    file.write_text("model: {target: /models/a}\ncluster: {num_replicas: 2, max_replicas: 3}\n")
    result = runner.invoke(app, ["check", "--config", str(file), "--only", "config"])
    assert result.exit_code == 0, result.stderr
    assert "2 to 3 replicas" in result.stderr
    result = runner.invoke(app, ["check", "--config", str(file), "--only", "models"])
    assert (result.exit_code, result.stderr.count("✗")) == (2, 1)
    assert "target=/models/a" in result.stderr
    file.write_text("cluster: {num_replicas: 2, max_replicas: 1}\n")
    result = runner.invoke(app, ["check", "--config", str(file), "--only", "config"])
    assert (result.exit_code, "max_replicas=1" in result.stderr) == (2, True)
    result = runner.invoke(app, ["check", "--only", "keys"])
    assert (result.exit_code, "expected 'config' or 'models'" in result.stderr) == (2, True)


def test_check_names_everything_that_is_missing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ["--target", "/nowhere", "--draft", str(tmp_path)]
        keys = [f"http.port={port}", "cluster.worker_gpus=64"]
        result = runner.invoke(
            app, ["check", *arguments, *(part for key in keys for part in ("--set", key))]
        )
    assert result.exit_code == 2
    assert result.stderr.count("✗") == 4
    for words in ("target=/nowhere", "config.json", f":{port}", "128 GPU"):
        assert words in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "--k", "17"], "Got engine.k='17' from --k, expected 0 ≤ k ≤ 16"),
        (["check", "--set", "engine.kk=1"], "did you mean engine.k?"),
        (["check", "--config", "/nowhere.yaml"], "Cannot read the configuration /nowhere.yaml"),
        (["serve", "--target", "/nowhere"], "Got target=/nowhere, expected a model directory"),
        (["serve", "--numerics", "bitwise"], "expected 'auto', 'exact' or 'fast'"),
        (["serve", "--port", "0"], "1 ≤ port ≤ 65535"),
        (["serve", "/nowhere"], "Got target=/nowhere, expected a model directory"),
        (["serve", "--model", "/nowhere"], "Got target=/nowhere, expected a model directory"),
        (["serve", "/nowhere", "--target", "demo"], "Got /nowhere and --target demo, expected one"),
        (["generate", "x", "--temperature", "-1"], "Got temperature=-1.0"),
        (["generate", "x", "--top-p", "0"], "Got top_p=0.0, expected 0 < top_p ≤ 1"),
        (["generate", "x", "--seed", str(2**63)], "expected a 64-bit signed integer"),
        (["generate", "x", "--target", "/nowhere"], "Got target=/nowhere"),
    ],
    ids=str,
)
def test_a_bad_wish_is_one_line(arguments: list[str], words: str) -> None:
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


def test_serve_on_a_taken_port_ends_before_ray_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = runner.invoke(app, ["serve", "--port", str(port)])
    assert result.exit_code == 2
    assert f"Cannot listen on 127.0.0.1:{port}" in result.stderr
    assert "Ray" not in result.stderr


def test_the_version() -> None:
    result = runner.invoke(app, ["--version"])
    assert result.stdout == f"outrider {version('outrider')}\n"


def test_every_setting_is_listed() -> None:
    from outrider.cluster.config.config import Config

    listed = runner.invoke(app, ["settings"]).stdout
    for section, field in Config.model_fields.items():
        for key in type(field.get_default()).model_fields:
            assert f"{section}.{key} " in listed
    of_http = runner.invoke(app, ["settings", "http"]).stdout
    assert "http.port" in of_http
    assert "engine.k" not in of_http
    refused = runner.invoke(app, ["settings", "htp"])
    assert refused.exit_code == 2
    assert "expected one of model, engine, http, cluster" in refused.stderr


def test_check_says_what_the_models_take() -> None:
    result = runner.invoke(app, ["check", "--set", "engine.kv_tokens=4096"])
    assert "✓ memory: 0.05 GB for the models" in result.stderr
    assert "room for 4096 tokens of text, 0.15 GB" in result.stderr
    result = runner.invoke(app, ["check", "--set", "engine.kv_tokens=1000000000"])
    assert result.exit_code == 2
    assert "✗ memory: Got engine.kv_tokens=1000000000, which take" in result.stderr


def test_check_says_what_a_head_is(tmp_path: Path) -> None:
    for kind in ("eagle3", "medusa"):
        result = runner.invoke(app, ["check", "--drafter", kind])
        assert result.exit_code == 0, result.output
        assert f"a head of kind {kind} in" in result.output
    result = runner.invoke(app, ["check", "--drafter", f"medusa:{demo_head('eagle3')}"])
    assert result.exit_code == 2
    assert f"accepted: eagle3:{demo_head('eagle3')}" in result.output
    result = runner.invoke(app, ["check", "--drafter", f"medusa:{tmp_path}"])
    assert "got no *.safetensors" in result.output
    result = runner.invoke(app, ["check", "--drafter", "early_exit", "--draft", "demo"])
    assert result.exit_code == 2
    assert "the draft model demo, accepted: one of them" in result.output


def test_check_compares_tokenizers(tmp_path: Path) -> None:
    folder = tmp_path / "other"
    shutil.copytree(demo_draft(), folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    one, two = list(vocabulary)[100:102]
    vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    result = runner.invoke(app, ["check", "--draft", str(folder)])
    assert result.exit_code == 2
    assert "✗ pair: " in result.stderr
    assert "memory" not in result.stderr


def test_an_unknown_flag() -> None:
    assert runner.invoke(app, ["serve", "--kk", "3"]).exit_code == 2


def test_a_model_that_the_engine_refuses_is_one_line(tmp_path: Path) -> None:
    """What preflight cannot see: an architecture nobody knows."""
    for name in ("tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    config = {"architectures": ["NoSuchModel"], "model_type": "no_such_model"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    result = outrider("generate", "x", "--target", str(tmp_path))
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    assert "error: " in result.stderr


@pytest.mark.slow
def test_generate_writes_the_text_and_nothing_else_to_stdout() -> None:
    flags = ["--seed", "5", "--max-tokens", "24", "--stats"]
    first = outrider("generate", "def add(a, b):", *flags)
    assert first.returncode == 0, first.stderr
    assert first.stdout.strip()
    for part in ("acceptance", "tokens per round", "schedule", "propose", "verify", "commit"):
        assert part in first.stderr
        assert part not in first.stdout
    assert "0 of 0 drafted" not in first.stderr
