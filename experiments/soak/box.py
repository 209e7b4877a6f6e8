"""The box in the middle of a soak: a switch that stays and is measured, one that is restarted again and again, and the
orders of jobs that ranks carry out."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

from tributary import _core

#: Seconds after which whatever has not come does not come.
PATIENCE_S = 90

#: After this many jobs a rank is killed; no divisor in common with the number of protocols, so that each comes to it.
KILL_EVERY = 5

#: Of protocols that sum every type and sparse tensors: what jobs sum, how, and which share of it a rank brings.
TYPES = ("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8")
OPERATORS = ("sum", "avg", "min", "max")
DENSITIES = ("0.001", "0.05", "1")
#: Operators of jobs' own that come along: in any order, in that of a tree, and in that of ranks.
OWN_OPERATORS = ("maxloc", "xor", "saturating-i8", "log-sum-exp", "matrix-2x2")

#: A lost member is forgotten after this many seconds, so that its slots are free soon.
GRACE_S = 5


class Box:
    """Two switches, what was measured of the first, and what went wrong."""

    def __init__(self, folder: Path, switches: list[str], world_size: int, pause_s: float) -> None:
        """Start both."""
        self.folder, self.switches, self.world_size, self.pause_s = folder, switches, world_size, pause_s
        (folder / "switch.toml").write_text(f'grace = "{GRACE_S} s"\n[operators]\nallow = "any"\n')
        self.random = random.Random(18)
        self.counts: Counter[str] = Counter()
        self.protocols: Counter[str] = Counter()
        #: Jobs of any type so far, by protocol.
        self.turns: Counter[str] = Counter()
        self.faults: list[str] = []
        self.series: dict[str, list[tuple[float, float]]] = {}
        self.steady, self.restarted = self.start(0), self.start(1)
        self.descriptors = self.open_descriptors()
        (folder / "ready").touch()
        self.begin = time.monotonic()

    def start(self, which: int) -> subprocess.Popen[str]:
        """Start a switch and wait until it is ready."""
        flags = ["--listen", self.switches[which], "--config", str(self.folder / "switch.toml"), "--json"]
        command = [sys.executable, "-m", "tributary", "switch", *flags, "--log", "error"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        if not process.stdout.readline().startswith("{"):
            raise SystemExit("soak: a switch did not start")
        return process

    def soak(self, seconds: float) -> dict[str, Any]:
        """Soak for so long; what was seen."""
        end = self.begin + seconds
        names = re.findall(r'jobs_packets_total\{protocol="([\w-]+)"\}', self.metrics())
        lanes = [threading.Thread(target=self.order, args=(which, names, end)) for which in range(2)]
        # A run of a minute has a few restarts as well.
        restarter = threading.Thread(target=self.restart, args=(min(60.0, seconds / 5), end))
        for thread in (*lanes, restarter):
            thread.start()
        sample_s = min(5.0, seconds / 100)
        while time.monotonic() < end:
            self.sample()
            time.sleep(sample_s)
        for thread in (*lanes, restarter):
            thread.join()
        (self.folder / "done").touch()
        self.finish()
        return self.seen(seconds, names)

    def metrics(self) -> str:
        """What Prometheus would read of the switch that stays."""
        with urllib.request.urlopen(f"http://{self.switches[0]}/metrics", timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())

    def open_descriptors(self) -> int:
        """Of the switch that stays."""
        return len(os.listdir(f"/proc/{self.steady.pid}/fd"))

    def in_use(self) -> tuple[float, float, float]:
        """Bytes of jobs, slots of shared memory that some job holds, and compiled operators that some job uses."""
        text = self.metrics()

        def total(name: str) -> float:
            return sum(map(float, re.findall(rf"^tributary_{name}(?:\{{.*\}})? (\S+)", text, re.MULTILINE)))

        # Of each job, because what jobs share stays when they have ended, until others need the memory.
        with urllib.request.urlopen(f"http://{self.switches[0]}/status", timeout=PATIENCE_S) as answer:
            jobs = json.loads(answer.read())["jobs"]
        of_jobs = sum(float(job["memory_bytes"]) for job in jobs)
        return of_jobs, total("shared_slots_in_use"), total("operators")

    def sample(self) -> None:
        """Look at everything once."""
        used, shared, operators = self.in_use()
        values = {"memory that jobs hold": used / 2**20, "shared slots that jobs hold": shared}
        values["operators that jobs use"] = operators
        pids = {"the switch": self.steady.pid}
        if (pid := self.folder / "pid-0").exists():
            pids["a rank"] = int(pid.read_text())
        for name, number in pids.items():
            resident = int(Path(f"/proc/{number}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            values[f"memory of {name}"] = resident / 2**20
            values[f"descriptors of {name}"] = len(os.listdir(f"/proc/{number}/fd"))
        at = time.monotonic() - self.begin
        for name, value in values.items():
            self.series.setdefault(name, []).append((at, value))

    def order(self, which: int, names: list[str], end: float) -> None:
        """Order one job after the other at one switch, of one protocol after the other, and look at how each ends."""
        # Each at least once, however short the soak is; where one switch's rank is killed, the other's is not.
        shift = which * len(names) // 2
        for number in count():
            if time.monotonic() > end and number >= len(names):
                return
            protocol, kill = names[(number + shift) % len(names)], number % KILL_EVERY == KILL_EVERY - 1
            self.one_job(which, f"{which}-{number}", protocol, kill)
            time.sleep(self.pause_s)

    def one_job(self, which: int, label: str, protocol: str, kill: bool) -> None:
        """Have all ranks of one job run, and judge what they say."""
        # The victim falls in the middle of sums without an end.
        iters = 10**8 if kill else self.random.randint(1, 20)
        order = {"switch": self.switches[which], "job": f"churn-{label}", "protocol": protocol, "iters": iters}
        order |= {"elements": self.random.randint(1, 100_000), "victim": None, "flags": self.kind(protocol)}
        if kill:
            order |= {"victim": self.random.randrange(self.world_size), "after_s": self.random.uniform(0.5, 2.0)}
        whole = self.folder / f"order-{label}.json"
        unfinished = whole.with_suffix(".part")
        unfinished.write_text(json.dumps(order))
        unfinished.rename(whole)
        answers = [self.folder / f"answer-{label}-{rank}.json" for rank in range(self.world_size)]
        if not self.wait_for(answers):
            return self.fault(f"{protocol}, job {label}: a rank hangs")
        ends = [json.loads(answer.read_text()) for answer in answers]
        for file in (*answers, whole):
            file.unlink()
        title = " ".join([f"{protocol}, job {label}", *order["flags"]])
        return self.judge(which, title, protocol, order["victim"], ends)

    def kind(self, protocol: str) -> list[str]:
        """What a job sums: in turn sparse tensors, elements of an operator of its own, and dense tensors of any type.

        Of protocols that cannot do the first it is integers; of those that cannot do the second, the others in turn.
        """
        if _core.sparse_options(protocol, {}) is None:
            return ["--dtype", "i32"]
        dtype, op = self.random.choice(TYPES), self.random.choice(OPERATORS)
        self.counts["jobs of any type"] += 1
        self.turns[protocol] += 1
        turn = self.turns[protocol] % (3 if _core.takes_operators(protocol) else 2)
        if turn == 0:
            return ["--dtype", dtype, "--op", op]
        if turn == 2:
            self.counts["jobs with operators of their own"] += 1
            return ["--op", self.random.choice(OWN_OPERATORS)]
        self.counts["sparse jobs"] += 1
        return ["--dtype", dtype, "--op", op, "--sparse", self.random.choice(DENSITIES)]

    def judge(self, which: int, title: str, protocol: str, victim: int | None, ends: list[dict[str, Any]]) -> None:
        """A job must have ended well, or with a sentence if a rank was killed or its switch may have been."""
        self.counts["jobs"] += 1
        if all(end["code"] == 0 for end in ends):
            if victim is not None:
                self.fault(f"{title}: a rank was killed, and nobody noticed")
            self.protocols[protocol] += 1
            return
        if victim is not None:
            self.counts["ranks killed"] += 1
        for rank, end in enumerate(ends):
            has_sentence = end["code"] == 1 and end["error"].startswith("tributary: error: ")
            if rank != victim and end["code"] != 0 and not (has_sentence and (which == 1 or victim is not None)):
                self.fault(f"{title}: rank {rank} ended with {end['code']}: {end['error'][-300:]}")

    def wait_for(self, files: list[Path]) -> bool:
        """Wait for files of other hosts."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if all(file.exists() for file in files):
                return True
            time.sleep(0.05)
        return False

    def fault(self, sentence: str) -> None:
        """Keep what went wrong, and say it at once."""
        self.faults.append(sentence)
        print(f"soak: {sentence}", file=sys.stderr, flush=True)

    def restart(self, every_s: float, end: float) -> None:
        """End the second switch in good order and without a word, in turns, and start it again."""
        for number in count():
            time.sleep(every_s)
            if time.monotonic() > end - every_s / 2:
                return
            self.restarted.send_signal(signal.SIGTERM if number % 2 else signal.SIGKILL)
            self.restarted.wait(PATIENCE_S)
            self.restarted = self.start(1)
            self.counts["restarts"] += 1

    def finish(self) -> None:
        """When all ranks have left, the switch that stays must hold nothing."""
        if not self.wait_for([self.folder / f"left-{rank}.json" for rank in range(self.world_size)]):
            self.fault("a rank did not leave at the end")
        deadline = time.monotonic() + PATIENCE_S
        in_use, more = self.in_use(), 1
        while (any(in_use) or more > 0) and time.monotonic() < deadline:
            time.sleep(0.5)
            in_use, more = self.in_use(), self.open_descriptors() - self.descriptors
        if any(in_use):
            left_over = f"{in_use[0]:.0f} bytes, {in_use[1]:.0f} shared slots and {in_use[2]:.0f} operators"
            self.fault(f"after all jobs had ended the switch held {left_over}")
        if more > 0:
            self.fault(f"after all jobs had ended the switch had {more} descriptors more than at first")
        if self.steady.poll() is not None:
            self.fault("the switch that stays has ended")
        for switch in (self.steady, self.restarted):
            switch.terminate()
            switch.wait(PATIENCE_S)

    def seen(self, seconds: float, names: list[str]) -> dict[str, Any]:
        """All that the verdict and the picture are made of."""
        for rank in range(self.world_size):
            file = self.folder / f"left-{rank}.json"
            parted: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
            self.counts.update(parted.get("counts", {}))
            self.faults += parted.get("faults", [])
        latency = [tuple(map(float, row.split())) for row in (self.folder / "latency").read_text().splitlines()]
        self.series["latency"] = [(at, milliseconds) for at, milliseconds in latency]
        protocols = {name: self.protocols[name] for name in names}
        seen = {"seconds": seconds, "counts": dict(self.counts), "protocols": protocols}
        return seen | {"faults": self.faults, "series": self.series}
