"""The life of a deployment, without Kubernetes: what the manifest says, on a Ray cluster of pods.

    python tests/deploy/operations.py [--manifest FILE] [--streams 8] [--json FILE] [--quick]

Head and workers start in namespaces of their own with the manifest's flags, environment, user and
rights, token authentication on; its serveConfigV2 goes through `serve deploy`. Under streams whose
texts are compared, the deployment then grows to two replicas and shrinks again, rolls to another
configuration, has a pod deleted (its preStop), and a node's raylet killed. A small forwarder stands
for the Service: it sends each connection to a pod whose readiness probe passes. Needs root, and
kubectl to build the overlay if no manifest is named.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import httpx
import pods
import yaml
from pod_service import PORT, Service
from pod_streams import PROMPTS, Load, Phase
from ray_pods import RayPods, until

EVENTS = ("grow", "shrink", "roll", "leave", "lose")
OVERLAY = pods.ROOT / "k8s" / "overlays" / "cpu-demo"
SETTLE_S = 300.0


class Life:
    """The events, one after the other."""

    def __init__(self, cluster, load, service, num_streams):
        self._cluster, self._load, self._service = cluster, load, service
        self._num_streams = num_streams
        self._config = yaml.safe_load(cluster.spec["serveConfigV2"])

    async def _until(self, condition, what, within_s=SETTLE_S):
        await asyncio.to_thread(until, condition, what, within_s)

    async def _are_running(self, count):
        cluster = self._cluster
        await self._until(lambda: len(cluster.running()) == count, cluster.status)

    async def deploy(self):
        """Deployed, ready, and the texts known."""
        started, phase = time.monotonic(), Phase("deploy")
        await asyncio.to_thread(self._cluster.deploy, self._config)
        await self._until(
            lambda: self._cluster.status()["status"] == "RUNNING", self._cluster.status
        )
        await self._until(lambda: self._service.ready, "no pod is ready")
        await self._load.learn()
        phase.num_texts, phase.took_s = len(PROMPTS), time.monotonic() - started
        return phase

    async def grow(self):
        phase = Phase("1 → 2 replicas under load")
        async with self._load.flowing(phase, self._num_streams):
            await self._are_running(2)
            await self._until(lambda: len(self._service.ready) == 2, "only one pod is ready")
        return phase

    async def shrink(self):
        phase = Phase("2 → 1 replicas under one stream")
        async with self._load.flowing(phase, 1):
            await self._are_running(1)
        return phase

    async def roll(self):
        """Another configuration: new replicas take over, and it is seen to be in force."""
        phase, before = Phase("roll to a new configuration"), set(self._cluster.running())
        [application] = self._config["applications"]
        application["args"].setdefault("http", {})["max_prompts"] = 7
        async with self._load.flowing(phase, 2):
            await asyncio.to_thread(self._cluster.deploy, self._config)
            await self._until(
                lambda: (now := set(self._cluster.running())) and not now & before,
                self._cluster.status,
            )
            await self._until(
                lambda: self._cluster.status()["status"] == "RUNNING", self._cluster.status
            )
        headers = {"Authorization": f"Bearer {self._cluster.secret}"}
        url = f"{self._load.url}/capabilities"
        reply = await asyncio.to_thread(httpx.get, url, headers=headers)
        assert reply.json()["limits"]["prompts"] == 7, reply.text
        return phase

    def _pod_of_a_replica(self):
        ips = set(self._cluster.running().values())
        return next(pod for pod in self._cluster.workers if pod.ip in ips)

    async def leave(self):
        """A pod with a replica is deleted; another pod is there to take it."""
        phase, before = Phase("pod deleted: its preStop"), set(self._cluster.running())
        pod = self._pod_of_a_replica()
        async with self._load.flowing(phase, 2):
            took_s, done = await asyncio.to_thread(self._cluster.leave, pod)
            phase.notes = f"preStop took {took_s:.0f} s"
            if done.returncode or "not everything ended" in done.stderr:
                phase.failures.append(done.stderr[-300:])
            await self._until(lambda: set(self._cluster.running()) - before, self._cluster.status)
        return phase

    async def lose(self):
        """A node's raylet is killed, and with it the only replica; clients resume."""
        phase = Phase("kill -9 of the raylet under a replica")
        pod, before = self._pod_of_a_replica(), set(self._cluster.running())
        [raylet] = pod.pids("raylet/raylet")
        async with self._load.flowing(phase, 2, resumes=True):
            await asyncio.sleep(2)
            os.kill(raylet, 9)
            await asyncio.to_thread(pod.process.wait)  # as the container: `ray start --block` ends
            self._cluster.workers.remove(pod)
            await self._until(lambda: set(self._cluster.running()) - before, self._cluster.status)
            await self._until(lambda: self._service.ready, "no pod is ready")
        return phase


async def live(cluster, num_streams, events, phases):
    service = Service(cluster)
    load = Load(f"http://{pods.GATEWAY}:{PORT}", cluster.secret, random.Random(0))
    life = Life(cluster, load, service, num_streams)
    probing = asyncio.create_task(service.run())
    for event in ("deploy", *events):
        phases.append(await getattr(life, event)())
        print(asdict(phases[-1]), file=sys.stderr)
        if event in ("leave", "lose"):
            await asyncio.to_thread(add_worker, cluster)  # as KubeRay would
    probing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await probing


def add_worker(cluster):
    worker = cluster.add_worker()
    until(lambda: cluster.passes(worker, "startupProbe"), f"{worker.name} does not start")


def manifest(path):
    if path is None:
        command = ["kubectl", "kustomize", str(OVERLAY)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    else:
        text = path.read_text()
    return [each for each in yaml.safe_load_all(text) if each]


def report(phases):
    lines = ["| event | texts | failed | longest silence | took | |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {each.name} | {each.num_texts} | {len(each.failures)} | "
        f"{each.longest_silence_s:.1f} s | {each.took_s:.0f} s | {each.notes} |"
        for each in phases
    ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--manifest", type=Path, help="as kubectl kustomize or render printed it")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--workers", type=int, default=3, help="pods at the start")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--events", nargs="*", choices=EVENTS, default=EVENTS)
    parser.add_argument("--cache", type=Path, help="compiled kernels, kept from run to run")
    args = parser.parse_args()
    pods.inside()
    folder = Path(tempfile.mkdtemp(prefix="operations-", dir="/tmp"))
    folder.chmod(0o755)
    phases = []
    cluster = RayPods(manifest(args.manifest), folder, args.cache or folder / "numba")
    try:
        until(lambda: cluster.passes(cluster.head, "startupProbe"), "the head does not start")
        for _ in range(args.workers):
            add_worker(cluster)
        asyncio.run(live(cluster, args.streams, args.events, phases))
    finally:
        cluster.close()
        print(report(phases))
        if args.json:
            found = {"machine": platform.platform(), "phases": [asdict(each) for each in phases]}
            args.json.write_text(json.dumps(found, indent=1))
    shutil.rmtree(folder)
    sys.exit(any(phase.failures for phase in phases))


if __name__ == "__main__":
    main()
