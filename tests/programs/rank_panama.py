"""Runs jobs of three ranks one after the other, each rank a thread, and prints the bits of all results as JSON."""

from __future__ import annotations

import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import rank
import tributary

PROTOCOL = "panama"
WORLD_SIZE = 3
SIZE = 100_003


def one(own: int, switch: str, job: str) -> tuple[str, int]:
    """A rank of one run, which comes when it comes."""
    time.sleep(random.random() / 20)
    with rank.connect(own, WORLD_SIZE, switch, job, timeout=60.0, protocol=PROTOCOL) as group:
        first = rank.digest(group.all_reduce(rank.data(own, SIZE, "f32")))
        time.sleep(random.random() / 50)
        again = rank.digest(group.all_reduce(rank.data(own, SIZE, "f32")))
        assert first == again
        return first, group.stats().retransmissions


def main(runs: int) -> None:
    """All runs, and the reference."""
    reference = tributary.panama.reference([rank.data(own, SIZE, "f32") for own in range(WORLD_SIZE)])
    digests: list[str] = []
    sent_again = 0
    with tributary.Switch(cores=2) as switch, ThreadPoolExecutor(WORLD_SIZE) as pool:
        for number in range(runs):
            futures = [pool.submit(one, own, switch.address, f"run{number}") for own in range(WORLD_SIZE)]
            for future in futures:
                digest, again = future.result(timeout=120)
                digests.append(digest)
                sent_again += again
    print(json.dumps({"digests": digests, "reference": rank.digest(reference), "sent_again": sent_again}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
