"""A RayService's cluster in pods of our own: every container starts as KubeRay would start it."""

import base64
import contextlib
import json
import os
import secrets
import time
from pathlib import Path

import httpx
import pods
import yaml

SUFFIXES = {"Mi": 1 << 20, "Gi": 1 << 30}
START_S = 120.0
KEY = "operator"
USER = 1000


class RayPods:
    """The head and the workers of one manifest."""

    def __init__(self, objects, folder, cache):
        kinds = {each["kind"]: each for each in objects if each["metadata"]["name"] == "outrider"}
        config = next(each for each in objects if each["metadata"]["name"] == "outrider-config")
        self.spec = kinds["RayService"]["spec"]
        self.folder = Path(folder)
        self.secret = secrets.token_hex(16)
        self._token = secrets.token_hex(32)
        self._files = {f"/etc/outrider/{name}": text for name, text in config["data"].items()}
        self._number = 1
        self._cache = cache  # of compiled kernels: the image has one, here the first pod fills it
        self._cache.mkdir(exist_ok=True)
        os.chown(self._cache, USER, USER)
        self.head = self._start("head", self.spec["rayClusterConfig"]["headGroupSpec"])
        self.workers = []

    def add_worker(self):
        """Another pod, as the autoscaler would ask for it."""
        [group] = self.spec["rayClusterConfig"]["workerGroupSpecs"]
        self.workers.append(self._start(f"worker{self._number}", group, self.head))
        return self.workers[-1]

    def _start(self, name, group, head=None):
        self._number += 1
        pod = pods.Pod(name, self._number, self._files, [str(self._cache)])
        container = group["template"]["spec"]["containers"][0]
        command = ["bash", "-c", f"ulimit -n 65536; ray start {self._flags(group, head)} --block"]
        environment = self._environment(container, head or pod)
        assert group["template"]["spec"]["securityContext"]["runAsUser"] == USER
        pod.start(command, environment, USER, self.folder / f"{name}.log")
        pod.container = container
        return pod

    def _flags(self, group, head):
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        given = {
            "num-cpus": limits["cpu"],
            "memory": str(int(limits["memory"][:-2]) * SUFFIXES[limits["memory"][-2:]]),
            "metrics-export-port": "8080",
            "dashboard-agent-listen-port": "52365",
        } | group["rayStartParams"]
        start = ["--head"] if head is None else [f"--address={head.ip}:6379"]
        return " ".join([*start, *(f"--{name}={value}" for name, value in given.items())])

    def _environment(self, container, head):
        values = {"RAY_ADDRESS": f"{head.ip}:6379", "LANG": "C.UTF-8"}
        assert self.spec["rayClusterConfig"]["authOptions"] == {"mode": "token"}
        values |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self._token}
        for each in container["env"]:
            values[each["name"]] = each.get("value") or f"{KEY}={self.secret}"
        return values | {"NUMBA_CACHE_DIR": str(self._cache)}

    def deploy(self, serve_config):
        """`serve deploy`, which hands the file to the dashboard, as KubeRay does."""
        text = base64.b64encode(yaml.safe_dump(serve_config).encode()).decode()
        script = f"echo {text} | base64 -d > /tmp/serve.yaml && serve deploy /tmp/serve.yaml"
        return self.head.execute(
            ["env", "RAY_DASHBOARD_ADDRESS=http://127.0.0.1:8265", "bash", "-c", script],
            timeout=120,
            check=True,
        )

    def status(self):
        """What Serve says of the application."""
        headers = {"Authorization": f"Bearer {self._token}"}
        url = f"http://{self.head.ip}:8265/api/serve/applications/"
        reply = httpx.get(url, headers=headers, timeout=30)
        reply.raise_for_status()
        return reply.json()["applications"].get("outrider", {"status": "ABSENT", "deployments": {}})

    def running(self):
        """The address of each replica that runs."""
        return {
            each["replica_id"]: each["node_ip"]
            for deployment in self.status()["deployments"].values()
            for each in deployment["replicas"]
            if each["state"] == "RUNNING"
        }

    def passes(self, pod, probe):
        """Whether a pod's probe passes now."""
        what = pod.container[probe]
        if "exec" in what:
            return pod.execute(what["exec"]["command"]).returncode == 0
        get = what["httpGet"]
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"http://{pod.ip}:{get['port']}{get['path']}").status_code == 200
        return False

    def leave(self, pod):
        """What a pod's deletion begins with: its preStop. Returns how long it took."""
        started = time.monotonic()
        done = pod.execute(pod.container["lifecycle"]["preStop"]["exec"]["command"], timeout=600)
        took_s = time.monotonic() - started
        pod.kill()
        self.workers.remove(pod)
        return took_s, done

    def close(self):
        for pod in [*self.workers, self.head]:
            pod.kill()


def until(condition, what, within_s=START_S, every_s=0.5):
    """Wait for a condition."""
    started = time.monotonic()
    while True:
        with contextlib.suppress(httpx.HTTPError):
            if result := condition():
                return result
        assert time.monotonic() - started < within_s, json.dumps(what() if callable(what) else what)
        time.sleep(every_s)
