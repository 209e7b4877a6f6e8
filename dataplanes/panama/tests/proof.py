"""Proves what each stage of the adder must do (the assertions in `fp_add.sv`), by yosys' SAT solver, for all values.

`proof.py` proves it for binary32, binary16, bfloat16 and binary64, and sees that a fault in a stage is refuted.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ADDER = Path(__file__).parent.parent / "rtl" / "fp_add.sv"
#: Bits of exponent and fraction.
FORMATS = {"binary32": (8, 23), "binary16": (5, 10), "bfloat16": (8, 7), "binary64": (11, 52)}
#: One fault in each stage: what stands there, and what is inserted.
FAULTS = [
    ("a[BITS-2:0] < b[BITS-2:0]", "a[BITS-2:0] > b[BITS-2:0]"),
    ("shifted[SIG] || (shifted[SIG-1:0] != '0)", "shifted[SIG]"),
    ("zeros = SHIFT'(SIG - 1 - i)", "zeros = SHIFT'(SIG - i)"),
    ("(s3_sum[3] || s3_sum[1] || s3_sum[0])", "(s3_sum[1] || s3_sum[0])"),
]


def proves(adder: Path, exponent: int, fraction: int) -> bool:
    """Whether all assertions hold in this format, with every register of the pipeline free to have any value."""
    script = f"read_verilog -sv -formal {adder}; chparam -set EXP {exponent} -set MAN {fraction} fp_add; "
    script += "hierarchy -top fp_add; proc; opt_clean; expose -evert-dff; opt -full -nodffe -nosdff; "
    done = subprocess.run(["yosys", "-p", f"{script} sat -prove-asserts fp_add"], capture_output=True, text=True)
    found = done.stdout + done.stderr
    proven, refuted = "no model found: SUCCESS!" in found, "model found: FAIL!" in found
    if done.returncode or proven == refuted:
        raise SystemExit(f"yosys neither proves nor refutes it:\n{found[-2000:]}")
    return proven


def main() -> int:
    """Prove all formats and refute all faults; how many do not come out so."""
    failed = 0
    for name, (exponent, fraction) in FORMATS.items():
        holds = proves(ADDER, exponent, fraction)
        failed += not holds
        print(f"{name}: {'proven' if holds else 'REFUTED'}")
    text = ADDER.read_text()
    for stage, (right, wrong) in enumerate(FAULTS, 1):
        assert text.count(right) == 1, right
        with tempfile.NamedTemporaryFile("w", suffix=".sv") as faulty:
            faulty.write(text.replace(right, wrong))
            faulty.flush()
            noticed = not proves(Path(faulty.name), *FORMATS["binary32"])
        failed += not noticed
        print(f"a fault in stage {stage}: {'refuted' if noticed else 'NOT NOTICED'}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
