"""Every object is one that Kubernetes takes, under its restricted rules, and names what exists."""

import json
import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import ray
import yaml
from cluster.asgi import ask
from cluster.k8s.manifests import (
    INSTALLATIONS,
    KUBERNETES,
    ROOT,
    Object,
    check_pod,
    cluster_of,
    containers,
    crd_schema,
    of_kind,
    serve,
    templates,
    the,
)
from cluster.k8s.manifests import _objects as _objects
from ray._private import ray_constants
from typer.testing import CliRunner

from outrider.cluster.api.app import create_app
from outrider.cluster.api.service import ApiLimits, Service
from outrider.cluster.cli import app
from outrider.cluster.config.sources import CONFIG_ENV, build, from_tree
from outrider.cluster.k8s import containers as contents
from outrider.cluster.k8s import ports, ray_service
from outrider.cluster.k8s.verify import serve_config

FOREIGN = {"RayService", "PodMonitor", "PrometheusRule"}
MONITOR = {"selector", "podMetricsEndpoints"}


def test_core_objects_are_valid(objects: list[Object]) -> None:
    for each in objects:
        if each["kind"] not in FOREIGN:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)


def test_pods_are_valid(objects: list[Object]) -> None:
    assert len(templates(objects)) == 2
    for template in templates(objects).values():
        check_pod(template)


def test_ray_service_is_valid(objects: list[Object]) -> None:
    schema = crd_schema()
    if schema is None:
        pytest.skip("KubeRay's definitions are not here")
    service = the(objects, "RayService")
    jsonschema.Draft202012Validator(schema).validate(service)
    service["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["template"]["spec"]["restart"] = "x"
    with pytest.raises(jsonschema.ValidationError, match="restart"):
        jsonschema.Draft202012Validator(schema).validate(service)


@pytest.mark.parametrize("where", ["", "containers", "securityContext"])
def test_a_typo_in_a_pod_is_found(objects: list[Object], where: str) -> None:
    for template in templates(objects).values():
        part = template["spec"][where] if where else template["spec"]
        (part[0] if isinstance(part, list) else part)["typo"] = 1
        with pytest.raises(kubernetes_validate.ValidationError, match="typo"):
            check_pod(template)


def test_monitoring_objects_hold_what_their_operator_knows(objects: list[Object]) -> None:
    spec = the(objects, "PodMonitor")["spec"]
    assert set(spec) == MONITOR
    [endpoint] = spec["podMetricsEndpoints"]
    assert set(endpoint) == {"port", "interval"}
    for each in containers(objects):
        assert each["name"] == "prepare" or endpoint["port"] in {p["name"] for p in each["ports"]}
    for group in the(objects, "PrometheusRule")["spec"]["groups"]:
        assert set(group) == {"name", "rules"}
        for rule in group["rules"]:
            assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}


def security_contexts(objects: list[Object]) -> list[Object]:
    found = [each["securityContext"] for each in containers(objects)]
    options = cluster_of(objects).get("autoscalerOptions")
    return found if options is None else [*found, options["securityContext"]]


def restricted_faults(objects: list[Object]) -> list[str]:
    """What the Pod Security Standard `restricted` refuses, and we beside it."""
    faults = []
    for context in security_contexts(objects):
        if context.get("allowPrivilegeEscalation") is not False:
            faults.append("privilege escalation")
        if context.get("capabilities") != {"drop": ["ALL"]}:
            faults.append("capabilities")
        if context.get("readOnlyRootFilesystem") is not True:
            faults.append("root file system")
        if context.get("privileged"):
            faults.append("privileged")
    for template in templates(objects).values():
        spec = template["spec"]
        context = spec["securityContext"]
        if not (context.get("runAsNonRoot") is True and context.get("runAsUser", 0) > 0):
            faults.append("root")
        if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
            faults.append("seccomp")
        if spec.get("automountServiceAccountToken") is not False:
            faults.append("token")
        if {"hostNetwork", "hostPID", "hostIPC"} & set(spec):
            faults.append("host")
        allowed = {"name", "emptyDir", "configMap", "persistentVolumeClaim", "projected"}
        if any(set(volume) - allowed for volume in spec["volumes"]):
            faults.append("volume")
    return faults


def test_pods_are_restricted(objects: list[Object]) -> None:
    assert restricted_faults(objects) == []
    labels = the(objects, "Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    for account in of_kind(objects, "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False
    named = {each["spec"]["serviceAccountName"] for each in templates(objects).values()}
    assert named == {each["metadata"]["name"] for each in of_kind(objects, "ServiceAccount")}


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("allowPrivilegeEscalation", True, "privilege escalation"),
        ("capabilities", {"drop": ["NET_RAW"]}, "capabilities"),
        ("readOnlyRootFilesystem", False, "root file system"),
    ],
)
def test_a_lax_container_is_found(objects: list[Object], name: str, value: Any, fault: str) -> None:
    next(containers(objects))["securityContext"][name] = value
    assert fault in restricted_faults(objects)


def test_only_the_autoscaler_gets_a_token(objects: list[Object]) -> None:
    for each in containers(objects):
        assert "token" not in {mount["name"] for mount in each.get("volumeMounts", [])}
    options = cluster_of(objects).get("autoscalerOptions")
    if options is not None:
        head = templates(objects)["head"]["spec"]
        assert {mount["name"] for mount in options["volumeMounts"]} <= {
            volume["name"] for volume in head["volumes"]
        }


def test_requests_are_limits(objects: list[Object]) -> None:
    for each in containers(objects):
        assert each["resources"]["requests"] == each["resources"]["limits"]
        assert {"cpu", "memory"} <= set(each["resources"]["limits"])


def test_what_containers_mount_is_there(objects: list[Object]) -> None:
    config = the([each for each in objects if "outrider.yaml" in each.get("data", {})], "ConfigMap")
    for template in templates(objects).values():
        spec = template["spec"]
        volumes = {each["name"]: each for each in spec["volumes"]}
        for each in [*spec.get("initContainers", []), *spec["containers"]]:
            assert {mount["name"] for mount in each["volumeMounts"]} <= set(volumes)
        if "config" in volumes:
            assert volumes["config"]["configMap"]["name"] == config["metadata"]["name"]
    [engine] = [each for each in containers(objects) if each["name"] == "ray-worker"]
    file = {each["name"]: each.get("value") for each in engine["env"]}[CONFIG_ENV]
    [mounted] = [each for each in engine["volumeMounts"] if each["name"] == "config"]
    assert file == f"{mounted['mountPath']}/{next(iter(config['data']))}"


def test_configuration_is_one(objects: list[Object]) -> None:
    """The ConfigMap, Serve's `args` and the typed tree are the same."""
    installations = [
        each for each in INSTALLATIONS.values() if ray_service.ray_service(each) in objects
    ]
    assert installations
    config = next(each for each in objects if "outrider.yaml" in each.get("data", {}))
    raw = serve_config(the(objects, "RayService"))
    [application] = raw["applications"]
    assert yaml.safe_load(config["data"]["outrider.yaml"]) == application["args"]
    assert build(from_tree(application["args"], "args")) == installations[0].config


def test_serve_builds_what_is_deployed(objects: list[Object]) -> None:
    [application] = serve_config(the(objects, "RayService"))["applications"]
    module, _, function = application["import_path"].partition(":")
    assert module == serve.__name__
    built = getattr(serve, function)(application["args"])
    deployment = built._bound_deployment
    group = cluster_of(objects)["workerGroupSpecs"][0]
    scaling = deployment._deployment_config.autoscaling_config
    least = scaling.min_replicas if scaling else deployment.num_replicas
    most = scaling.max_replicas if scaling else deployment.num_replicas
    assert least == group["minReplicas"]
    surge = -(-deployment._deployment_config.max_surge_percent * most // 100)
    assert group["maxReplicas"] == most + surge
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    bundles = deployment._replica_config.placement_group_bundles
    assert sum(bundle["CPU"] for bundle in bundles) <= int(limits["cpu"])
    gpus = int(limits.get("nvidia.com/gpu", 0))
    assert sum(bundle.get("GPU", 0) for bundle in bundles) == gpus
    assert bool(gpus) == ("tolerations" in group["template"]["spec"])


def test_a_pod_lives_as_long_as_its_streams(objects: list[Object]) -> None:
    [application] = serve_config(the(objects, "RayService"))["applications"]
    config = build(from_tree(application["args"], "args"))
    for template in templates(objects).values():
        [container] = template["spec"]["containers"]
        script = container["lifecycle"]["preStop"]["exec"]["command"][-1]
        words = shlex.split(script.partition(";")[0])
        assert words[:3] == ["python", "-m", "outrider.cluster.k8s.leave"]
        assert find_spec(words[2]) is not None
        within_s = float(words[words.index("--within") + 1])
        assert template["spec"]["terminationGracePeriodSeconds"] > within_s
        assert within_s > config.cluster.drain_s >= config.http.request_timeout_s
    spec = the(objects, "RayService")["spec"]
    assert spec["rayClusterDeletionDelaySeconds"] > config.http.request_timeout_s


async def test_probes_ask_for_what_answers(objects: list[Object]) -> None:
    agent = (Path(ray.__file__).parent / "dashboard" / "http_server_agent.py").read_text()
    proxy = Path(ray.__file__).parent / "serve" / "_private" / "haproxy.py"
    for template in templates(objects).values():
        [container] = template["spec"]["containers"]
        for name in ("startupProbe", "livenessProbe"):
            get = container[name]["httpGet"]
            assert get["port"] == ray_constants.DEFAULT_DASHBOARD_AGENT_LISTEN_PORT
            assert f'"{get["path"]}"' in agent  # asked without a token
    [engine] = [each for each in containers(objects) if each["name"] == "ray-worker"]
    script = engine["readinessProbe"]["exec"]["command"][-1]
    health, ready = re.findall(r"http://127\.0\.0\.1:(\d+)(\S+)", script)
    assert int(health[0]) == int(ready[0]) == ports.CLIENTS
    reply = await ask(create_app(Service("x", ApiLimits())), ready[1], method="GET")
    assert (reply.status, json.loads(reply.body)) == (503, {"ready": False})  # it has no engine
    assert f'"{health[1]}"' in proxy.read_text()


def test_ports_and_versions_are_rays(objects: list[Object]) -> None:
    from ray.serve._private.constants import DEFAULT_HTTP_PORT

    assert ports.GCS == ray_constants.DEFAULT_PORT
    assert ports.DASHBOARD == ray_constants.DEFAULT_DASHBOARD_PORT
    assert ports.CLIENTS == DEFAULT_HTTP_PORT
    assert cluster_of(objects)["rayVersion"] == ray.__version__


def test_environment_is_read_by_somebody(objects: list[Object]) -> None:
    constants = Path(ray.__file__).parent / "serve" / "_private" / "constants.py"
    known = constants.read_text()
    for each in containers(objects):
        for name in (pair["name"] for pair in each["env"]):
            if name.startswith("RAY_SERVE_"):
                assert f'"{name}"' in known, name
    assert contents.CACHE_FOLDERS.keys() & {"NUMBA_CACHE_DIR", "CUPY_CACHE_DIR"}


def test_the_commands_are_ours(tmp_path: Path, objects: list[Object]) -> None:
    """The init container's command, on a configuration whose models are here."""
    [prepare] = [each for each in containers(objects) if each["name"] == "prepare"]
    words = shlex.split(prepare["command"][-1].partition("; ")[2])
    file = tmp_path / "outrider.yaml"
    file.write_text("cluster: {num_replicas: 1}\n")
    words[words.index("--config") + 1] = str(file)
    result = CliRunner().invoke(app, words[1:])
    assert (words[0], result.exit_code) == ("outrider", 0), result.stderr


def test_one_image(objects: list[Object]) -> None:
    project = (ROOT / "pyproject.toml").read_text()
    [version] = re.findall(r'^version = "(.+)"', project, re.MULTILINE)
    assert {each["image"] for each in containers(objects)} == {f"outrider:{version}"}
