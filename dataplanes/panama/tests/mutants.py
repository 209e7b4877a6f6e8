"""Inserts faults into the design, one at a time, and sees that the named test notices each."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys

from run import HERE, TARGET

#: What is wrong, the file, what stands there, what is inserted, and the test that must fail (`adder` is adder.py).
MUTANTS = [
    ("ties are rounded up", "fp_add.sv", "s3_sum[2] && (s3_sum[3] || s3_sum[1] || s3_sum[0])", "s3_sum[2]", "adder"),
    ("bits that fall off are lost", "fp_add.sv", "shifted[SIG] || (shifted[SIG-1:0] != '0)", "shifted[SIG]", "adder"),
    ("subnormals become normal", "fp_add.sv", "s3_sum[SIG-1] ? s3_exp : '0;", "s3_sum != '0 ? s3_exp : '0;", "adder"),
    (
        "a position without an operand is added as +0", "adder_tree.sv", "both[3] ? added : alone[3]", "added",
        "a_port_that_is_not_in_the_bitmap_is_bypassed",
    ),
    (
        "the VID moves on by two", "agg_control.sv", "command_vid : expected + 1'b1", "command_vid : expected + 32'd2",
        "figure_6a",
    ),
    (
        "one VID too many has space", "agg_control.sv", "ahead >= 32'(capacity)", "ahead > 32'(capacity)",
        "lost_late_doubled_and_far_packets_are_dropped_by_name",
    ),
    (
        "the last mark wins", "agg_control.sv", "is_first ? capable : capable | entry_ecn", "capable",
        "marks_and_capacities_are_joined",
    ),
    (
        "the greatest capacity leaves", "agg_control.sv", "is_first || wnd_cap < entry_cap",
        "is_first || wnd_cap > entry_cap",
        "marks_and_capacities_are_joined",
    ),
    (
        "positions are ports", "agg_datapath.sv", "positions[16*p+:16] == 16'(i)", "p == i",
        "sums_are_in_the_order_of_positions_whatever_the_order_of_arrival",
    ),
    (
        "a lost VID's slots are never free again", "agg_control.sv", "((lost_vid || state == CLEAR) && have[p])",
        "(state == CLEAR && have[p])", "what_is_dropped_frees_its_buffer",
    ),
    (
        "the key is not compared", "header_parser.sv", "!= its_key) fault", "!= its_key && 1'b0) fault",
        "lost_late_doubled_and_far_packets_are_dropped_by_name",
    ),
    (
        "a frame that passes may be cut by a sum", "egress.sv", "is_sum = is_inside ? was_sum :", "is_sum =",
        "what_is_not_ours_passes_untouched_and_in_order",
    ),
]  # fmt: skip


def survives(file: str, old: str, new: str, test: str, name: str) -> bool:
    """True if the test does not notice the fault."""
    folder = TARGET / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE.parent / "rtl", folder / "rtl")
    path = folder / "rtl" / file
    text = path.read_text()
    assert text.count(old) == 1, f"{file}: `{old}` stands there {text.count(old)} times"
    path.write_text(text.replace(old, new))
    command = [sys.executable, str(HERE / ("adder.py" if test == "adder" else "run.py")), "--rtl", str(folder / "rtl")]
    command += ["--name", name]
    done = subprocess.run(command if test == "adder" else [*command, test], capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    # It must fail because of what it saw, and not because nothing was built.
    noticed = re.search(r"[1-9]\d* wrong|TESTS=1 PASS=0 FAIL=1", output)
    if done.returncode != 0 and not noticed:
        print(output[-2000:])
        raise SystemExit(f"mutants: {name}: the test did not run")
    return done.returncode == 0


def main() -> int:
    """Inserts them; 0 if every one is noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, help="the number of one fault")
    options = parser.parse_args()
    survivors = 0
    for number, (what, file, old, new, test) in enumerate(MUTANTS):
        if options.only in (None, number):
            lives = survives(file, old, new, test, f"mutant{number}")
            survivors += lives
            print(f"{number:2} {'SURVIVES' if lives else 'killed'} by {test}: {what}", flush=True)
    return survivors


if __name__ == "__main__":
    sys.exit(main())
