"""Execute the Dockerfile's instructions in clean roots, without Docker: as root, with debootstrap.

    python tests/deploy/image.py [--variant cpu] [--root FOLDER] [--share /a/pip/index ...]

Each stage gets a minimal Debian of the release that its base image names, with Debian's Python in
place of the image's own; RUN runs in it by chroot, COPY copies what k8s/Dockerfile.dockerignore
lets through. What the last stage holds is then tried as its USER, with nothing to write but /tmp:
the demo pair is loaded. Folders that pip needs on this machine are shared with --share.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "k8s" / "Dockerfile"
RELEASE = "bookworm"
PACKAGES = "python3,python3-venv,ca-certificates"
TRIALS = ["outrider check --load", "wget --version", "outrider k8s render", "ray --version"]


def instructions(text):
    """Each instruction's word and the rest, lines joined and comments dropped."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", "\n", "\n".join(lines))
    found, word = [], None
    for line in joined.splitlines():
        head = line.partition(" ")[0]
        if re.fullmatch(r"[A-Z]+", head) and not line.startswith(" "):
            word = head
            found.append((word, line.partition(" ")[2]))
        elif line.strip() and found:
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
    return found


class Stage:
    """One root and what the instructions have set in it."""

    def __init__(self, folder, arguments, shared):
        self.folder, self._arguments, self._shared = folder, arguments, shared
        self._environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
        self.user, self._place = "0:0", "/"

    def _filled(self, text):
        values = {**self._arguments, **self._environment}
        return re.sub(r"\$\{?(\w+)\}?", lambda found: values.get(found[1], ""), text)

    def apply(self, word, rest, stages):
        if word == "ARG":
            name, _, default = rest.partition("=")
            self._arguments.setdefault(name, default)
        elif word == "ENV":
            for pair in shlex.split(rest):
                name, _, value = pair.partition("=")
                self._environment[name] = self._filled(value)
        elif word == "WORKDIR":
            self._place = rest
            (self.folder / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "USER":
            self.user = rest
        elif word == "COPY":
            self._copy(shlex.split(rest), stages)
        elif word == "RUN":
            started = time.monotonic()
            self.run(rest)
            print(f"{time.monotonic() - started:6.0f} s  {rest[:90]}", flush=True)
        else:
            assert word in {"SHELL", "EXPOSE", "CMD"}, word

    def _copy(self, words, stages):
        if words[0].startswith("--from="):
            source = stages[words.pop(0).partition("=")[2]].folder
        else:
            source = ROOT
        *names, target = words
        there = self.folder / self._place.lstrip("/") / target
        if target.startswith("/"):
            there = self.folder / target.lstrip("/")
        for name in names:
            found = source / name.lstrip("/")
            if found.is_dir():
                skip = shutil.ignore_patterns("__pycache__")
                shutil.copytree(found, there, symlinks=True, ignore=skip, dirs_exist_ok=True)
            else:
                shutil.copy(found, there)

    def run(self, command, is_sealed=False):
        """In the root, as its user; sealed, /tmp alone can be written."""
        user, group = self.user.split(":")
        given = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        values = {**given, **self._arguments, **self._environment, "HOME": "/tmp"}
        pairs = shlex.join(f"{name}={value}" for name, value in values.items() if value)
        steps = [f"cd {self.folder}", "mount --bind . . && cd ."]
        steps += ["mount -t proc proc proc", "mount --rbind /dev dev"]
        steps += [f"mkdir -p ./{path} && mount --bind {path} ./{path}" for path in self._shared]
        if is_sealed:
            steps += [f"mount -o remount,bind,ro {self.folder}", "mount -t tmpfs tmpfs tmp"]
        script = f"cd {self._place} && {command}"
        bare = f"setpriv --reuid={user} --regid={group} --clear-groups"
        inner = f"{bare} env -i {pairs} bash -euo pipefail -c {shlex.quote(script)}"
        steps.append(f"exec chroot {self.folder} {inner}")
        isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-ec"]
        subprocess.run([*isolated, "; ".join(steps)], check=True)


def bare_root(folder):
    """A Debian with nothing but Python, as the base image has."""
    if not folder.exists():
        command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", RELEASE, folder]
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
        (folder / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    return folder


def build(root, arguments, shared):
    """Every stage; returns the last."""
    stages, current = {}, None
    base = bare_root(root / "base")
    for word, rest in instructions(DOCKERFILE.read_text()):
        if word == "FROM":
            assert RELEASE in arguments.get("PYTHON", ""), arguments
            name = rest.partition(" AS ")[2] or "last"
            folder = root / name
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run(["cp", "-a", base, folder], check=True)  # devices are not files
            current = stages[name] = Stage(folder, dict(arguments), shared)
        elif current is None:
            name, _, default = rest.partition("=")
            arguments.setdefault(name, default)
        else:
            current.apply(word, rest, stages)
    return current


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--variant", default="cpu", choices=("cpu", "cuda12", "cuda13"))
    parser.add_argument("--root", type=Path, help="kept; by default a folder that is removed")
    parser.add_argument("--share", nargs="*", default=[])
    args = parser.parse_args()
    root = args.root or Path(tempfile.mkdtemp(prefix="image-"))
    root.mkdir(exist_ok=True)
    try:
        last = build(root, {"VARIANT": args.variant}, args.share)
        for trial in TRIALS:
            last.run(f"{trial} > /dev/null", is_sealed=True)
            print(f"as {last.user}, sealed: {trial}", flush=True)
    finally:
        if args.root is None:
            shutil.rmtree(root)
    sys.exit(0)


if __name__ == "__main__":
    main()
