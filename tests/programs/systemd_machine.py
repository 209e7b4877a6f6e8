"""A systemd that is process 1 of its own namespaces, as on a machine where a switch is a service (``boot_systemd``)."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import program
import tributary

SYSTEMD = Path("/lib/systemd/systemd")
SOURCE = Path(__file__).parent.parent.parent
#: Where the machine has this machine's Python, packages and source, and the folder that both share.
MOUNTS = Path("/opt/tributary")
PYTHON = str(MOUNTS / "python" / Path(sys.executable).resolve().relative_to(Path(sys.base_prefix).resolve()))
PACKAGES = f"{MOUNTS}/package:{MOUNTS}/site"
#: The program as a script. Its package is mounted where the unit lets the switch read it, as it does no home directory.
PROGRAM = f"""#!/bin/sh
PYTHONPATH={PACKAGES} exec {PYTHON} -m tributary "$@"
"""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Seconds until a command in the machine counts as hung.
PATIENCE_S = 60


def why_not() -> str | None:
    """Why no systemd can be booted here, if so."""
    if os.geteuid() != 0:
        return "namespaces and a root for systemd need root"
    if not SYSTEMD.exists():
        return "systemd is missing: apt-get install systemd"
    missing = [tool for tool in ("unshare", "nsenter", "setpriv", "pivot_root", "ip") if shutil.which(tool) is None]
    if missing:
        return f"missing: {', '.join(missing)}; apt-get install util-linux iproute2"
    return None


class CannotBootError(Exception):
    """This machine's kernel, or the container around it, does not allow what ``boot_systemd`` needs."""


class Machine:
    """A running systemd."""

    def __init__(self, folder: Path) -> None:
        """Boot it, and wait until it has started what it starts by itself."""
        self.shared = folder / "shared"
        self.shared.mkdir()
        layer = folder / "layer"
        layer.mkdir()
        self._group = f"tributary-systemd-{os.getpid()}"
        (package,) = tributary.__path__
        folders = [sys.base_prefix, sysconfig.get_path("purelib"), str(Path(package).parent), str(SOURCE)]
        boot = str(Path(__file__).with_name("boot_systemd"))
        self._log = folder / "boot"
        with self._log.open("w") as log:
            self._boot = subprocess.Popen(
                # It does not outlive the tests, whatever ends them.
                ["setpriv", "--pdeathsig", "KILL", boot, self._group, str(layer), *folders, str(self.shared)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self._init = self._await_init()
            self._await_boot()
        except BaseException:
            self.stop()
            raise

    def _await_init(self) -> int:
        """Give systemd's process id, as this machine has it."""
        children = Path(f"/proc/{self._boot.pid}/task/{self._boot.pid}/children")
        for _ in range(PATIENCE_S * 10):
            if self._boot.poll() is not None:
                raise CannotBootError(self._log.read_text().strip().rpartition("\n")[2])
            # It may fail and be gone at any moment.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for child in map(int, children.read_text().split()):
                    if Path(f"/proc/{child}/cmdline").read_bytes().startswith(bytes(SYSTEMD)):
                        return child
            time.sleep(0.1)
        raise AssertionError("systemd has not begun")

    def _await_boot(self) -> None:
        for _ in range(PATIENCE_S * 10):
            state = self.run("systemctl", "is-system-running", "--wait", check=False).stdout.strip()
            # Services of the distribution may fail in namespaces.
            if state in ("running", "degraded"):
                return
            time.sleep(0.1)
        raise AssertionError(f"systemd has not booted: {state}")

    def command(self, *words: str) -> list[str]:
        """Give the command line that runs a command in the machine."""
        environment = ["env", "-i", f"--chdir={MOUNTS}/source", f"PATH={PATH}", "LC_ALL=C", f"PYTHONPATH={PACKAGES}"]
        return ["nsenter", "--target", str(self._init), "--all", *environment, *words]

    def run(
        self, *words: str, check: bool = True, text: str = "", stderr: int = subprocess.STDOUT
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the machine to its end."""
        result = subprocess.run(
            self.command(*words),
            input=text,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert not check or result.returncode == 0, (words, result.stdout)
        return result

    def write(self, path: str, text: str) -> None:
        """Write a file of the machine's, in a folder that may not exist yet."""
        self.run("sh", "-c", 'mkdir -p "${0%/*}" && cat > "$0"', path, text=text)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command in the machine; its output is kept."""
        process = subprocess.Popen(
            self.command(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        program.running.add(process)
        return process

    def stop(self) -> None:
        """End every process of the machine, and remove its control groups."""
        self._boot.kill()
        self._boot.wait(PATIENCE_S)
        groups = [*Path("/sys/fs/cgroup").glob(self._group), *Path("/sys/fs/cgroup").glob(f"*/{self._group}")]
        for _ in range(100):
            # A group stays for a moment after its last process has been killed.
            left = [folder for group in groups for folder, _, _ in os.walk(group, topdown=False)]
            for folder in left:
                try:
                    os.rmdir(folder)
                except OSError:
                    continue
            if not left:
                return
            time.sleep(0.05)
        raise AssertionError(f"these control groups stay: {left}")
