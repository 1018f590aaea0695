"""Pods without Kubernetes: a manifest's containers in namespaces of Linux, as root.

Each pod has an address, processes and a /tmp of its own; all else is read-only, and it runs as the
manifest's user without a capability. Everything is inside one namespace of processes, so nothing
can outlive the program that made it. `inside()` re-executes the program there.
"""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from live.proc import children, name_of, running

ROOT = Path(__file__).resolve().parents[2]
MARK = "OUTRIDER_INSIDE"
NET = "10.93.0."
GATEWAY = NET + "1"
UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]


def is_possible():
    """Whether this machine lets us make namespaces."""
    if os.geteuid() != 0:
        return False
    return subprocess.run([*UNSHARE, "ip", "link"], capture_output=True).returncode == 0


def inside():
    """Return in namespaces of our own; the program starts again in them."""
    if MARK not in os.environ:
        os.environ[MARK] = "1"
        command = [*UNSHARE, sys.executable, *sys.argv]
        process = subprocess.Popen(command)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: process.kill())
        sys.exit(process.wait())
    run("mount -t tmpfs tmpfs /run")
    run("ip link set lo up")
    run("ip link add pods type bridge")
    run(f"ip address add {GATEWAY}/24 dev pods")
    run("ip link set pods up")


def run(command):
    subprocess.run(shlex.split(command), check=True)


def kept():
    """Folders that Python and the project need, though a pod's /tmp and /root are empty."""
    folders = {Path(sys.prefix), Path(sys.base_prefix), ROOT}
    return sorted(str(folder.resolve()) for folder in folders)


class Pod:
    """One pod: its namespaces live as long as its first process."""

    def __init__(self, name, number, files, folders=()):
        self.name, self.ip = name, f"{NET}{number}"
        self._folders = [*kept(), *folders]
        self._start_network()
        self._files = files  # contents by path
        self.process = None
        self.environment = {}

    def _start_network(self):
        run(f"ip netns add {self.name}")
        run(f"ip link add v-{self.name} type veth peer name eth0 netns {self.name}")
        run(f"ip link set v-{self.name} master pods up")
        within = f"ip -n {self.name}"
        run(f"{within} address add {self.ip}/24 dev eth0")
        run(f"{within} link set lo up")
        run(f"{within} link set eth0 up")
        run(f"{within} route add default via {GATEWAY}")

    def start(self, command, environment, user, log):
        """Run a container's command as its first process."""
        self.environment = environment
        script = "; ".join([*self._mounts(), "exec " + self._as(user, command, environment)])
        isolated = "unshare --mount --pid --fork --mount-proc --kill-child bash -ec"
        with open(log, "ab") as output:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", self.name, *isolated.split(), script],
                stdout=output,
                stderr=output,
            )
        self._user = user

    def _mounts(self):
        hidden = [folder for folder in self._folders if folder.startswith(("/tmp/", "/root/"))]
        steps = ["mkdir -p /run/kept", "mount -t tmpfs tmpfs /run/kept"]
        for index, folder in enumerate(hidden):
            steps += [f"mkdir /run/kept/{index}", f"mount --bind {folder} /run/kept/{index}"]
        steps += ["mount -t tmpfs -o mode=0755 tmpfs /root", "mount -t tmpfs tmpfs /tmp"]
        steps += ["mount -t tmpfs -o mode=1777 tmpfs /dev/shm"]
        for index, folder in enumerate(hidden):
            steps += [f"mkdir -p {folder}", f"mount --bind /run/kept/{index} {folder}"]
        steps += ["cp -a /etc /run/kept/etc", "mount --bind /run/kept/etc /etc"]
        for path, text in self._files.items():  # all of them below /etc
            folder = path.rpartition("/")[0]
            steps += [f"mkdir -p {folder}", f"printf %s {shlex.quote(text)} > {path}"]
        return [*steps, "chmod 1777 /tmp", "mount -o remount,bind,ro /"]

    def _as(self, user, command, environment):
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        pairs = [f"{name}={value}" for name, value in {"PATH": path, **environment}.items()]
        bare = f"--reuid={user} --regid={user} --clear-groups --inh-caps=-all --bounding-set=-all"
        return shlex.join(
            ["setpriv", *bare.split(), "--no-new-privs", "env", "-i", *pairs, *command]
        )

    def first(self):
        """The pod's first process, as it is numbered here; None if it has ended."""
        below = sorted(children(self.process.pid))
        if below and name_of(below[0]) == "unshare":
            below = sorted(children(below[0]))
        return below[0] if below else None

    def execute(self, command, timeout=60, check=False):
        """As `kubectl exec` does; without success where the pod has ended."""
        if self.first() is None:
            return subprocess.CompletedProcess(command, 1, "", "the pod has ended")
        enter = f"nsenter --target {self.first()} --all bash -ec".split()
        script = self._as(self._user, command, self.environment)
        return subprocess.run(
            [*enter, script], capture_output=True, text=True, timeout=timeout, check=check
        )

    def pids(self, name):
        """The pod's processes whose command line holds this, as numbered here."""
        return running(self.process.pid, name)

    def kill(self):
        """All of it at once, as a node that loses power."""
        self.process.kill()
        self.process.wait()
