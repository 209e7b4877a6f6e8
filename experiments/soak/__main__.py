"""A soak of the whole: a star that loses packets, jobs of every protocol that come and go, ranks that are killed,
switches that are restarted, read their files again or get new programs, and hostile clients everywhere, for hours.

    python experiments/soak --hours 1 --out soak        # as `make soak HOURS=1`; needs root

It writes OUT.json and OUT.png: memory, descriptors, what the switch holds and latency over time. The exit code is 0 if
all of them are flat by the rules of `verdict.py`, and every sum was right or ended with a sentence where it had to.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import verdict

from tributary import plots

#: Host 0 is the box with the switches, the others have a rank of every job.
HOSTS = 5

#: Seconds for what is under way at the end, and for a switch to forget members that were killed.
PARTING_S = 240


def main() -> int:
    """Run the star, judge and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--loss", default="1 %", help="share of packets that each link loses in each direction")
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between two jobs")
    parser.add_argument("--out", type=Path, default=Path("soak"), help="where to write, without an ending")
    args = parser.parse_args()
    seconds = args.hours * 3600
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        host = [sys.executable, str(Path(__file__).with_name("host.py")), folder, str(seconds), str(args.pause)]
        star = ["lab", "star", "--hosts", str(HOSTS), "--loss", args.loss, "--shards", "1"]
        star += ["--timeout", f"{int(seconds) + PARTING_S}s", "--", *host]
        ran = subprocess.run([sys.executable, "-m", "tributary", *star], stdout=subprocess.PIPE, text=True, check=False)
    if ran.returncode != 0 or not ran.stdout.strip():
        print("soak: the star ended before its time", file=sys.stderr)
        return 1
    seen: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    seen["rules"] = verdict.judge(seen)
    args.out.with_suffix(".json").write_text(json.dumps(seen) + "\n")
    plots.draw_figures(verdict.figures(seen), "soak").savefig(args.out.with_suffix(".png"), dpi=120)
    return report(seen, args.out)


def report(seen: dict[str, Any], out: Path) -> int:
    """Print what happened, and whether it was flat."""
    counts = ", ".join(f"{count} {name}" for name, count in seen["counts"].items())
    print(f"{seen['seconds'] / 3600:.2f} h: {counts}")
    print("jobs that ended well: " + ", ".join(f"{name} {count}" for name, count in seen["protocols"].items()))
    for rule in seen["rules"]:
        print(f"{'flat' if rule['flat'] else 'NOT FLAT':9} {rule['name']}: {rule['sentence']}")
    for fault in seen["faults"]:
        print(f"FAULT     {fault}")
    print(f"written: {out.with_suffix('.json')}, {out.with_suffix('.png')}")
    return 0 if not seen["faults"] and all(rule["flat"] for rule in seen["rules"]) else 1


if __name__ == "__main__":
    sys.exit(main())
