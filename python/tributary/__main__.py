"""``python -m tributary`` and the console script ``tributary``: the command line program."""

import signal
import sys

from tributary import _core


def main() -> int:
    """Run the program on ``sys.argv`` and return its exit code."""
    # The program handles its signals itself, as the plain binary does. Python's own handler would wait for the
    # interpreter, which is busy until the program ends.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.stdout.flush()
    return _core.main(sys.argv, [sys.executable, "-m", "tributary"])


if __name__ == "__main__":
    sys.exit(main())
