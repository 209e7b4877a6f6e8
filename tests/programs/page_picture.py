"""Take the picture of the switch's page that the docs show: ``python tests/programs/page_picture.py docs/page.png``.

Three jobs of four ranks: one sums, one has a slow rank, one waits for a rank that never calls.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

import rank
from browser import Browser
from program import Daemon

WORLD_SIZE = 4
#: Seconds that the jobs run before the picture is taken.
RUN_S = 100


def job(pool: ThreadPoolExecutor, switch: str, name: str, slow_s: float, stop: threading.Event) -> None:
    """Sum until it is over, the third rank later than the others; without an end, if it never calls."""

    def one(number: int) -> None:
        with rank.connect(number, WORLD_SIZE, switch, name, timeout=2 * RUN_S) as group:
            data = np.ones(400_000, np.float32)
            while not stop.is_set():
                is_late = number == 2 and slow_s > 0
                # Every rank stops after the same sum.
                time.sleep(slow_s if is_late else 0.02)
                data[:] = 0
                if group.all_reduce(data)[0]:
                    return

    for number in range(WORLD_SIZE):
        pool.submit(one, number)


def stuck(pool: ThreadPoolExecutor, switch: str, name: str, stop: threading.Event) -> None:
    """Wait for the third rank."""

    def one(number: int) -> None:
        group = rank.connect(number, WORLD_SIZE, switch, name, timeout=2 * RUN_S)
        if number != 2:
            group.all_reduce_async(np.ones(1_000, np.float32))
        stop.wait()
        group.abort()

    for number in range(WORLD_SIZE):
        pool.submit(one, number)


def main() -> None:
    """Run the jobs, and take the picture."""
    file, daemon, stop = Path(sys.argv[1]), Daemon("--cores", "1"), threading.Event()
    with ThreadPoolExecutor(3 * WORLD_SIZE) as pool, tempfile.TemporaryDirectory() as folder:
        job(pool, daemon.address, "resnet50", 0.0, stop)
        job(pool, daemon.address, "llama-fsdp", 0.25, stop)
        time.sleep(RUN_S / 2)
        stuck(pool, daemon.address, "vit-small", stop)
        with Browser(Path(folder) / "profile", width=1240, height=860) as window:
            window.open(f"http://{daemon.address}/")
            time.sleep(RUN_S / 2)
            window.await_text("stands still")
            window.picture(file)
        daemon.kill()
        stop.set()
    # Sixteen colours are enough, and a tenth of the bytes.
    Image.open(file).convert("RGB").quantize(48).save(file, optimize=True)
    print(f"{file}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
