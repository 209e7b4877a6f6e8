"""Many runs of one sum on links that lose packets, ranks starting in another order each time: a host's part."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import rank

SIZE = 40_003
#: Jobs, and runs of the sum in each: connections take seconds where links lose the packets of TCP.
JOBS = 4
RUNS = 20
#: Ranks of the first rack; the rest are in the second.
RACK = 3
#: Seconds until a rack's switch counts as not started.
PATIENCE_S = 120


def own_address(switch: str) -> str:
    """This host's address on the way to the switch."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((switch.split(":")[0], 9))
        return str(probe.getsockname()[0])


def lower(own: int, switch: str, meet: Path) -> tuple[str, subprocess.Popen[bytes] | None]:
    """The address of the switch of this rank's rack; the first rank of a rack starts it, below the other switch."""
    file = meet / f"rack{own // RACK}"
    if own % RACK:
        deadline = time.monotonic() + PATIENCE_S
        while not file.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no switch of this rack within {PATIENCE_S} s")
            time.sleep(0.05)
        return file.read_text(), None
    address = f"{own_address(switch)}:17800"
    command = [sys.executable, "-m", "tributary", "switch", "--listen", address, "--parent", switch]
    cores = os.environ.get("RUNS_CORES", "1")
    started = subprocess.Popen([*command, "--cores", cores], stdout=subprocess.DEVNULL)
    while started.poll() is None:
        try:
            socket.create_connection((address.split(":")[0], 17800), timeout=1).close()
            break
        except OSError:
            time.sleep(0.05)
    else:
        raise RuntimeError(f"the switch of this rack ended with status {started.returncode}")
    file.with_suffix(".new").write_text(address)
    file.with_suffix(".new").rename(file)
    return address, started


def rounds(own: int, world_size: int, at: str, protocol: str, plan: str) -> dict[str, object]:
    """All runs of a plan, LEVELS:NAME=VALUE: how many different results and orders there were."""
    given = dict([plan.split(":")[1].split("=")])
    digests, orders = [], set()
    for job in range(JOBS):
        name = f"{plan.replace(':', '-').replace('=', '-')}-{job}"
        with rank.connect(own, world_size, at, name, timeout=60.0, protocol=protocol, options=given) as group:
            for run in range(job, RUNS, JOBS):
                # Some rank is the last, another one each time.
                time.sleep(random.Random(1_000 * run + own).random() / 20)
                digests.append(rank.digest(group.all_reduce(rank.data(own, SIZE, "f32"))))
                orders.add(group.stats().order)
    return {"digests": sorted(set(digests)), "orders": sorted(orders, key=str), "runs": len(digests)}


def main(protocol: str, meet: str, *plans: str) -> None:
    """All runs of this host, of all plans at once: they wait more than they work. Prints what came out, by plan."""
    own, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    switch = os.environ["TRIBUTARY_SWITCH"]
    below, started = lower(own, switch, Path(meet))
    try:
        with ThreadPoolExecutor(len(plans)) as pool:
            at = {"flat": switch, "levels": below}
            begun = {
                plan: pool.submit(rounds, own, world_size, at[plan.split(":")[0]], protocol, plan) for plan in plans
            }
            said = {plan: running.result() for plan, running in begun.items()}
    finally:
        # Who has a rack's switch ends last: the others may still be asking.
        (Path(meet) / f"done{own}").touch()
        while started is not None and len(list(Path(meet).glob("done*"))) < world_size:
            time.sleep(0.05)
        if started is not None:
            started.terminate()
            started.wait()
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
