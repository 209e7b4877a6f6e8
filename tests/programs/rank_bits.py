"""The bits of one sum in different circumstances: what a rank does, in a thread of the test or on a host of its own."""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import time
from collections.abc import Sequence

import numpy as np

import rank

SIZE = 40_003


def digest(
    own: int,
    world_size: int,
    switch: str,
    job: str,
    protocol: str,
    *,
    cuts: Sequence[int] = (),
    elements_per_packet: int | None = None,
    late: int | None = None,
) -> str:
    """The bits of a sum, of all elements at once or cut into pieces.

    `protocol` has its options behind its name; `late` draws how long this rank waits before each step.
    """
    name, *options = protocol.split()
    draw = None if late is None else random.Random(late * 1_000 + own)
    given = dict(option.split("=") for option in options)
    size = {} if elements_per_packet is None else {"elements_per_packet": elements_per_packet}
    with rank.connect(own, world_size, switch, job, timeout=30.0, protocol=name, options=given, **size) as group:
        source = rank.data(own, SIZE, "f32")
        total = np.empty_like(source)
        for start, end in itertools.pairwise([0, *cuts, SIZE]):
            if draw is not None:
                time.sleep(draw.random() / 50)
            total[start:end] = group.all_reduce(source[start:end])
        return rank.digest(total)


def main(protocols: list[str]) -> None:
    """This host's part in a sum under each protocol; prints the bits of all."""
    own, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    switch = os.environ["TRIBUTARY_SWITCH"]
    digests = [digest(own, world_size, switch, f"bits{number}", protocol) for number, protocol in enumerate(protocols)]
    print(json.dumps(dict(zip(protocols, digests, strict=True))))


if __name__ == "__main__":
    main(sys.argv[1:])
