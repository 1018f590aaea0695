"""What cannot work is refused before anything is printed; what was changed by hand is checked."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.k8s.manifests import QWEN, Object, cluster_of, installation, the
from typer.testing import CliRunner

from outrider.actors.errors import InvalidConfig
from outrider.cluster.cli import app
from outrider.cluster.k8s.installation import Installation
from outrider.cluster.k8s.manifest import document, manifest
from outrider.cluster.k8s.verify import verified

runner = CliRunner()


@pytest.mark.parametrize(
    ("assignments", "rest", "words"),
    [
        (["cluster.drain_s=10"], {}, "Got cluster.drain_s=10, expected at least http.request"),
        (["model.target=/data/a"], {}, "Got the model /data/a, expected a folder below /models"),
        (["cluster.worker_gpus=1"], {}, "with 0 GPUs a replica, expected 0"),
        (["cluster.placement=PACK"], {}, "expected STRICT_PACK"),
        (["cluster.num_replicas=4", "cluster.max_replicas=2"], {}, "max_replicas=2, expected at"),
        (["http.port=9000"], {}, "Got http.port=9000, expected 8000"),
        ([], {"cpus": 2}, "Got a pod of 2 CPU, expected at least the 3"),
        ([], {"num_gpus": 3}, "Got 3 GPUs a replica, expected 0, 1 or 2"),
        ([], {"image": "outrider"}, "Got image='outrider'"),
        ([], {"memory": "8G"}, "Got memory='8G'"),
        ([], {"namespace": "Team"}, "Got namespace='Team'"),
    ],
)
def test_refusals(assignments: list[str], rest: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        installation(*assignments, **rest)


def test_a_pair_on_two_gpus() -> None:
    """The README's example: a pod with two GPUs, one for each model."""
    arguments = ["--target", "/models/Qwen2.5-7B", "--draft", "/models/Qwen2.5-0.5B"]
    arguments += ["--gpus", "2", "--replicas", "2", "--max-replicas", "4", "--memory", "64Gi"]
    arguments += ["--image", "registry.example/outrider:0.1.0", "--namespace", "llm"]
    result = runner.invoke(app, ["k8s", "render", *arguments, "--monitoring"])
    assert result.exit_code == 0, result.stderr
    objects = list(yaml.safe_load_all(result.stdout))
    [group] = cluster_of(objects)["workerGroupSpecs"]
    assert (group["minReplicas"], group["maxReplicas"]) == (2, 5)  # 4, and one for updates
    [pod] = group["template"]["spec"]["containers"]
    assert pod["resources"]["limits"] == {"cpu": "3", "memory": "64Gi", "nvidia.com/gpu": "2"}
    assert pod["image"] == "registry.example/outrider:0.1.0"
    places = {each["metadata"].get("namespace") for each in objects if each["kind"] != "Namespace"}
    assert places == {"llm"}
    raw = yaml.safe_load(the(objects, "RayService")["spec"]["serveConfigV2"])
    assert raw["applications"][0]["args"]["model"] == {
        "target": "/models/Qwen2.5-7B",
        "draft": "/models/Qwen2.5-0.5B",
    }
    assert runner.invoke(app, ["k8s", "check", "-"], input=result.stdout).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "engine.kk=1"], "did you mean engine.k?"),
        (["--gpus", "2", "--set", "cluster.drain_s=5"], "Got cluster.drain_s=5"),
        (["--config", "/nowhere.yaml"], "Cannot read the configuration /nowhere.yaml"),
        (["--max-replicas", "0"], "Got cluster.max_replicas='0' from --max-replicas"),
    ],
)
def test_render_refuses_in_a_line(arguments: list[str], words: str) -> None:
    result = runner.invoke(app, ["k8s", "render", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in " ".join(result.stderr.split())


def test_render_takes_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "outrider.yaml"
    file.write_text("engine: {k: 7}\n")
    result = runner.invoke(app, ["k8s", "render", "--config", str(file), "--name", "pair"])
    assert result.exit_code == 0, result.stderr
    assert "\n      k: 7\n" in result.stdout.replace("  " * 4 + "  ", "  " * 3)
    assert "name: pair-config" in result.stdout


def changed(change: Any, base: Installation = QWEN) -> str:
    objects = copy.deepcopy(manifest(base, has_monitoring=False))
    change(objects)
    return document(objects)


def serve_text(old: str, new: str) -> Any:
    def change(objects: list[Object]) -> None:
        spec = the(objects, "RayService")["spec"]
        assert old in spec["serveConfigV2"]
        spec["serveConfigV2"] = spec["serveConfigV2"].replace(old, new)

    return change


def in_group(**values: Any) -> Any:
    return lambda objects: cluster_of(objects)["workerGroupSpecs"][0].update(values)


def in_pod(objects: list[Object], **values: Any) -> None:
    cluster_of(objects)["workerGroupSpecs"][0]["template"]["spec"].update(values)


def fewer_gpus(objects: list[Object]) -> None:
    template = cluster_of(objects)["workerGroupSpecs"][0]["template"]
    template["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1"


def test_what_was_rendered_is_right() -> None:
    assert len(verified(changed(lambda objects: None))) == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (serve_text("route_prefix", "route_prefx"), "does not know applications.route_prefx"),
        (serve_text("http_options", "http_option"), "does not know http_option "),
        (serve_text("host: 0.0.0.0\n  port", "hots: 0.0.0.0\n  port"), "http_options.hots"),
        (serve_text("drain_s", "drian_s"), "did you mean cluster.drain_s"),
        (serve_text("serve:build", "serve:bild"), "expected outrider.cluster.deploy.serve:build"),
        (serve_text("worker_gpus: 1.0", "worker_gpus: 2.0"), "its pod lacks 2 GPU"),
        (serve_text("worker_gpus: 1.0", "worker_gpus: auto"), "expected a number"),
        (serve_text("/models/Qwen2.5-7B", "/models/other"), "serveConfigV2's args differ"),
        (serve_text("proxy_location: EveryNode", "proxy_location: Some"), "Ray Serve refuses"),
        (fewer_gpus, "its pod lacks 1 GPU"),
        (in_group(maxReplicas=1), "Got 1 to 1 pods, expected 1 to 2"),
        (
            lambda objects: in_pod(objects, terminationGracePeriodSeconds=60),
            "Got terminationGracePeriodSeconds=60",
        ),
        (lambda objects: objects.clear(), "Got 0 objects of kind RayService"),
    ],
)
def test_what_was_changed_is_found(change: Any, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        verified(changed(change))


def test_models_by_name_come_from_the_hub() -> None:
    arguments = ["--target", "acme/large@v2", "--draft", "none", "--hub-secret", "hub"]
    for claim in ([], ["--cache-claim", "hub-cache"]):
        result = runner.invoke(app, ["k8s", "render", *arguments, *claim])
        assert result.exit_code == 0, result.stderr
        objects = list(yaml.safe_load_all(result.stdout))
        verified(result.stdout)
        [group] = cluster_of(objects)["workerGroupSpecs"]
        spec = group["template"]["spec"]
        for container in (spec["initContainers"][0], spec["containers"][0]):
            values = {each["name"]: each for each in container["env"]}
            assert values["HF_HOME"]["value"] == "/hub"
            token = values["HF_TOKEN"]["valueFrom"]["secretKeyRef"]
            assert token == {"name": "hub", "key": "token"}
            assert {"name": "hub", "mountPath": "/hub"} in container["volumeMounts"]
        [volume] = [each for each in spec["volumes"] if each["name"] == "hub"]
        kind = "persistentVolumeClaim" if claim else "emptyDir"
        assert kind in volume
        assert not [each for each in spec["volumes"] if each["name"] == "models"]
        [way_out] = [each for each in objects if each["metadata"]["name"] == "outrider-hub"]
        [rule] = way_out["spec"]["egress"]
        assert rule == {"ports": [{"protocol": "TCP", "port": 443}]}


def test_without_names_nothing_leaves_the_cluster() -> None:
    result = runner.invoke(app, ["k8s", "render"])
    assert "outrider-hub" not in result.stdout
    assert "HF_" not in result.stdout
