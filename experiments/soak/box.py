"""The box in the middle of a soak: its switches, what is measured, and the orders of jobs that ranks carry out."""

from __future__ import annotations

import json
import random
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from switches import NOT_YET, PATIENCE_S, Switch, measured

from tributary import _core

#: After this many jobs a rank is killed; no divisor in common with the number of protocols, so that each comes to it.
KILL_EVERY = 5

#: Of protocols that sum every type and sparse tensors: what jobs sum, how, and which share of it a rank brings.
TYPES = ("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8")
OPERATORS = ("sum", "avg", "min", "max")
DENSITIES = ("0.001", "0.05", "1")
#: Operators of jobs' own that come along: in any order, in that of a tree, and in that of ranks.
OWN_OPERATORS = ("maxloc", "xor", "saturating-i8", "log-sum-exp", "matrix-2x2")

#: The switches by number.
STEADY, RESTARTED, UPGRADED = range(3)


class Box:
    """Three switches, what was measured of two, and what went wrong."""

    def __init__(self, folder: Path, switches: list[str], world_size: int, pause_s: float) -> None:
        """Start them."""
        self.folder, self.switches, self.world_size, self.pause_s = folder, switches, world_size, pause_s
        self.random = random.Random(18)
        self.counts: Counter[str] = Counter()
        self.protocols: Counter[str] = Counter()
        #: Jobs of any type so far, by protocol.
        self.turns: Counter[str] = Counter()
        self.faults: list[str] = []
        self.series: dict[str, list[tuple[float, float]]] = {}
        self.steady, self.restarted, self.upgraded = map(self.start, range(3))
        (folder / "ready").touch()
        self.begin = time.monotonic()

    def start(self, which: int) -> Switch:
        """Start a switch."""
        return Switch(self.switches[which], self.folder / f"switch-{which}.toml")

    def soak(self, seconds: float) -> dict[str, Any]:
        """Soak for so long; what was seen."""
        end = self.begin + seconds
        names = re.findall(r'jobs_packets_total\{protocol="([\w-]+)"\}', self.steady.get("/metrics"))
        threads = [threading.Thread(target=self.order, args=(which, names, end)) for which in range(3)]
        # A run of a minute has a few of each as well.
        every_s = min(60.0, seconds / 5)
        for act in (self.reload, self.restart, self.upgrade):
            threads.append(threading.Thread(target=self.again, args=(act, every_s, end)))
        for thread in threads:
            thread.start()
        sample_s = min(5.0, seconds / 100)
        while time.monotonic() < end:
            self.sample()
            time.sleep(sample_s)
        for thread in threads:
            thread.join()
        (self.folder / "done").touch()
        self.finish()
        return self.seen(seconds, names)

    def in_use(self, switch: Switch) -> tuple[float, float, float]:
        """Bytes of jobs, slots of shared memory that some job holds, and compiled operators that some job uses."""
        text = switch.get("/metrics")

        def total(name: str) -> float:
            return sum(map(float, re.findall(rf"^tributary_{name}(?:\{{.*\}})? (\S+)", text, re.MULTILINE)))

        # Of each job, because what jobs share stays when they have ended, until others need the memory.
        of_jobs = sum(float(job["memory_bytes"]) for job in json.loads(switch.get("/status"))["jobs"])
        return of_jobs, total("shared_slots_in_use"), total("operators")

    def sample(self) -> None:
        """Look at everything once."""
        used, shared, operators = self.in_use(self.steady)
        values = {"memory that jobs hold": used / 2**20, "shared slots that jobs hold": shared}
        values["operators that jobs use"] = operators
        values |= self.steady.measured("the switch") | self.upgraded.measured("the newest program")
        if (pid := self.folder / "pid-0").exists():
            values |= measured("a rank", int(pid.read_text()))
        at = time.monotonic() - self.begin
        for name, value in values.items():
            self.series.setdefault(name, []).append((at, value))

    def order(self, which: int, names: list[str], end: float) -> None:
        """Order one job after the other at one switch, of one protocol after the other, and look at how each ends."""
        # Each at least once, however short the soak is; where one switch's rank is killed, the other's is not.
        shift = which * len(names) // 3
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
            is_expected = which == RESTARTED or victim is not None
            if rank != victim and end["code"] != 0 and not (has_sentence and is_expected):
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

    def again(self, act: Callable[[int], None], every_s: float, end: float) -> None:
        """Do something to a switch again and again."""
        for number in count():
            time.sleep(every_s)
            if time.monotonic() > end - every_s / 2:
                return
            act(number)

    def reload(self, number: int) -> None:
        """Have the switch that stays read its file again."""
        if wrong := self.steady.reload(number):
            self.fault(wrong)
        self.counts["reloads"] += 1

    def restart(self, number: int) -> None:
        """End a switch in good order and without a word, in turns, and start it again."""
        self.restarted.end(signal.SIGTERM if number % 2 else signal.SIGKILL)
        self.restarted = self.start(RESTARTED)
        self.counts["restarts"] += 1

    def upgrade(self, _: int) -> None:
        """Replace a switch's program. One that has taken over waits for the jobs of the one before."""
        why = self.upgraded.hand_over()
        if why is None:
            self.counts["hand-overs"] += 1
        elif NOT_YET in why:
            self.counts["hand-overs put off"] += 1
        else:
            self.fault(f"a program was not replaced: {why}")

    def finish(self) -> None:
        """When all ranks have left, the switches that served all the time must hold nothing."""
        if not self.wait_for([self.folder / f"left-{rank}.json" for rank in range(self.world_size)]):
            self.fault("a rank did not leave at the end")
        for switch in (self.steady, self.upgraded):
            self.check_empty(switch)
        for switch in (self.steady, self.restarted, self.upgraded):
            switch.end()

    def check_empty(self, switch: Switch) -> None:
        """Wait until a switch holds nothing of any job."""
        deadline = time.monotonic() + PATIENCE_S
        in_use, more = self.in_use(switch), 1
        while (any(in_use) or more > 0) and time.monotonic() < deadline:
            time.sleep(0.5)
            in_use, more = self.in_use(switch), switch.open_descriptors() - switch.descriptors
        if any(in_use):
            left_over = f"{in_use[0]:.0f} bytes, {in_use[1]:.0f} shared slots and {in_use[2]:.0f} operators"
            self.fault(f"after all jobs had ended {switch.address} held {left_over}")
        if more > 0:
            self.fault(f"after all jobs had ended {switch.address} had {more} descriptors more than at first")
        if not switch.is_running():
            self.fault(f"the switch at {switch.address} has ended")

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
