"""The load of a soak: a rank of every job that the box orders, and a pulse, a small sum again and again, at each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import box
import noise
import numpy as np

import tributary

#: Seconds from one beat of the pulse to the next.
BEAT_S = 0.25

#: The pulse of the switch whose program is replaced ends after this many beats, and begins again at the newest program.
BEATS = 40

#: Seconds until a rank gives up.
TIMEOUT_S = 20.0


class Load:
    """One host's ranks."""

    def __init__(self, folder: Path, switches: list[str], rank: int, world_size: int) -> None:
        """Say who this is, as the box looks at the process of rank 0, and wait for the switches."""
        self.folder, self.switches, self.rank, self.world_size = folder, switches, rank, world_size
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        unfinished = folder / f"pid-{rank}.part"
        unfinished.write_text(str(os.getpid()))
        unfinished.rename(folder / f"pid-{rank}")
        while not (folder / "ready").exists():
            time.sleep(0.05)
        self.begin = time.monotonic()

    @property
    def done(self) -> bool:
        """The box has seen enough."""
        return (self.folder / "done").exists()

    def bring(self) -> None:
        """Everything at once, until the end; then say what happened."""
        numbers, acts = range(len(self.switches)), (self.beat, self.carry_out)
        loads: list[tuple[Any, tuple[Any, ...]]] = [(act, (which,)) for act in acts for which in numbers]
        if self.rank == self.world_size - 1:
            loads.append((noise.knock, (self.switches, lambda: self.done, self.counts)))
        threads = [threading.Thread(target=load, args=words) for load, words in loads]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        unfinished = self.folder / f"left-{self.rank}.part"
        unfinished.write_text(json.dumps({"counts": self.counts, "faults": self.faults}))
        unfinished.rename(self.folder / f"left-{self.rank}.json")

    def beat(self, which: int) -> None:
        """Sum with the others, again and again; connect again when the switch was restarted or has a new program."""
        is_over = False
        while not is_over:
            try:
                with tributary.connect(
                    self.switches[which],
                    job=f"pulse-{which}",
                    rank=self.rank,
                    world_size=self.world_size,
                    timeout=TIMEOUT_S,
                ) as group:
                    is_over = self.beats(group, which)
            except tributary.TributaryError as error:
                if self.done:
                    return
                if which != box.RESTARTED:
                    self.faults.append(f"pulse {which} of rank {self.rank} stopped: {error}")
                elif self.rank == 0:
                    self.counts["connected again"] += 1
                time.sleep(0.5)

    def beats(self, group: tributary.Group, which: int) -> bool:
        """Sum until some rank has seen the end, and then True: all ranks stop after the same sum."""
        data = np.ones(256, np.float32)
        with (self.folder / "latency").open("a") as latency:
            for _ in range(BEATS) if which == box.UPGRADED else count():
                time.sleep(BEAT_S)
                data[0] = self.done
                begin = time.monotonic()
                total = group.all_reduce(data)
                end = time.monotonic()
                if not (total[1:] == self.world_size).all():
                    self.faults.append(f"a wrong sum at rank {self.rank}")
                if self.rank == 0 and which == box.STEADY:
                    self.counts["beats"] += 1
                    latency.write(f"{begin - self.begin:.3f} {(end - begin) * 1e3:.4f}\n")
                if total[0] > 0:
                    return True
        return False

    def carry_out(self, which: int) -> None:
        """Run this host's rank of one job of a switch after the other."""
        number = 0
        while True:
            order = self.folder / f"order-{which}-{number}.json"
            while not order.exists():
                if self.done:
                    return
                time.sleep(0.05)
            answer = self.run(json.loads(order.read_text()))
            unfinished = self.folder / f"answer-{which}-{number}-{self.rank}.part"
            unfinished.write_text(json.dumps(answer))
            unfinished.rename(unfinished.with_suffix(".json"))
            number += 1

    def run(self, order: dict[str, Any]) -> dict[str, Any]:
        """One rank as a process of its own; it checks its sums itself. The victim is killed."""
        words = ["--switch", order["switch"], "--job", order["job"], "--protocol", order["protocol"]]
        words += ["--rank", str(self.rank), "--world-size", str(self.world_size), "--timeout", f"{TIMEOUT_S}s"]
        words += ["--elements", str(order["elements"]), "--iters", str(order["iters"]), *order["flags"]]
        command = [sys.executable, "-m", "tributary", "allreduce", *words]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if order["victim"] == self.rank:
            time.sleep(order["after_s"])
            process.send_signal(signal.SIGKILL)
        try:
            _, error = process.communicate(timeout=3 * TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return {"code": 124, "error": "it hung, and was killed"}
        return {"code": process.returncode, "error": error}
