"""The switches of a soak: one is measured while its files are read again and again, one is restarted, and one gets a
new program."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

#: Seconds after which whatever has not come does not come.
PATIENCE_S = 90

#: A lost member is forgotten after this many seconds, so that its slots are free soon.
GRACE_S = 5

#: What a program answers that cannot be replaced yet.
NOT_YET = "jobs of the one before still run"


class Switch:
    """A switch, whichever of its programs serves it."""

    def __init__(self, address: str, file: Path) -> None:
        """Start it and wait until it is ready."""
        self.address, self.file = address, file
        #: Held while its newest program changes.
        self.lock = threading.Lock()
        write(file, GRACE_S)
        words = ["switch", "--listen", address, "--config", str(file), "--json", "--log", "error"]
        self.first = subprocess.Popen([sys.executable, "-m", "tributary", *words], stdout=subprocess.PIPE, text=True)
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.pid = int(self.await_event("listening")["pid"])
        # It has opened all that it needs when it has answered.
        self.get("/status")
        self.descriptors = self.open_descriptors()

    def read(self) -> None:
        """Take what the switch prints. All its programs have one stdout, which ends with the last of them."""
        assert self.first.stdout is not None
        for line in self.first.stdout:
            self.events.put(json.loads(line))

    def await_event(self, *names: str) -> dict[str, Any]:
        """The next event with one of these names."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                event = self.events.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                raise SystemExit(f"soak: the switch at {self.address} has not said any of {names}") from None
            if event.get("event") in names:
                return event

    def reload(self, number: int) -> str | None:
        """Have it read its file again, which is wrong now and then; what is wrong with its answer."""
        is_wrong = number % 4 == 3
        write(self.file, GRACE_S + number % 2, more="max_jobs = 'many'\n" if is_wrong else "")
        os.kill(self.pid, signal.SIGHUP)
        sentence = str(self.await_event("reloaded")["sentence"])
        expected = "the settings stay as they were" if is_wrong else "read the files again"
        return None if sentence.startswith(expected) else f"a file was read again: {sentence}"

    def hand_over(self) -> str | None:
        """Have it replace its program; why it did not."""
        with self.lock:
            os.kill(self.pid, signal.SIGUSR2)
            event = self.await_event("handed_over", "not_handed_over")
            if event["event"] == "not_handed_over":
                return str(event["sentence"])
            if self.pid == self.first.pid:
                # The channel to the program before, which it keeps when that has ended.
                self.descriptors += 1
            self.pid = int(event["pid"])
        return None

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it, with all its programs."""
        os.kill(self.pid, number)
        self.first.wait(PATIENCE_S)
        self.reader.join(PATIENCE_S)
        if self.reader.is_alive():
            raise SystemExit(f"soak: a program of the switch at {self.address} has not ended")

    def is_running(self) -> bool:
        """Whether its newest program runs."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except FileNotFoundError:
            return False

    def get(self, path: str) -> str:
        """What its control API answers."""
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())

    def measured(self, name: str) -> dict[str, float]:
        """Memory, descriptors and threads of its newest program."""
        with self.lock:
            return measured(name, self.pid)

    def open_descriptors(self) -> int:
        """Of its newest program."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def write(file: Path, grace_s: int, more: str = "") -> None:
    """Write a switch's file."""
    file.write_text(f'grace = "{grace_s} s"\n{more}[operators]\nallow = "any"\n')


def measured(name: str, pid: int) -> dict[str, float]:
    """Memory, descriptors and threads of a process."""
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        f"memory of {name}": resident / 2**20,
        f"descriptors of {name}": len(os.listdir(f"/proc/{pid}/fd")),
        f"threads of {name}": len(os.listdir(f"/proc/{pid}/task")),
    }
