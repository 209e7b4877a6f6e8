"""What one host of a soak's star does: host 0 is the switch, others load it, the last with unauthorised clients too."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import box
import load


def main() -> None:
    """Be one of the hosts."""
    folder, seconds, pause_s = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    # The star gives every host the address of host 0, and its own number.
    switches = [f"{os.environ['MASTER_ADDR']}:{port}" for port in (17777, 17778, 17779)]
    host, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]) - 1
    if host == 0:
        print(json.dumps(box.Box(folder, switches, world_size, pause_s).soak(seconds)), flush=True)
    else:
        load.Load(folder, switches, host - 1, world_size).bring()


if __name__ == "__main__":
    main()
