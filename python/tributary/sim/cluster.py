"""Points of a sweep on the workers of a Dask cluster.

As a program, ``python -m tributary.sim.cluster ADDRESS`` reads orders from its input, a line each, and writes what came
of each as it comes: ``{"number": 3, "finished": "..."}``. `tributary sim sweep --on` runs it.
"""

from __future__ import annotations

import json
import logging
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tributary import _core
from tributary.errors import SimulationError

#: The default port of a Dask scheduler.
DEFAULT_PORT = 8786

#: Seconds that a scheduler has to answer.
CONNECT_TIMEOUT = 5.0

#: How many runs are under way for each thread of the cluster, so that none waits for the network.
AHEAD = 3


def run_points(address: str, orders: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Run numbered orders on a cluster, and yield each result as it comes."""
    distributed = _distributed()
    with _connect(distributed, address) as client:
        threads = sum(client.nthreads().values())
        if threads == 0:
            raise SimulationError(f"the Dask scheduler at {address} has no workers; start some with `dask worker`")
        waiting = iter(orders)
        running: dict[Any, int] = {}
        done = distributed.as_completed(loop=client.loop)

        def start() -> None:
            """Send the next order, if there is one."""
            for number, order in waiting:
                future = client.submit(_run_point, order, pure=False)
                running[future] = number
                done.add(future)
                return

        for _ in range(AHEAD * threads):
            start()
        while running:
            future = next(done)
            yield running.pop(future), _outcome(future)
            start()


def _run_point(order: str) -> str:
    """Run one order: this is called on a worker."""
    return _core.run_point(order)


def _outcome(future: Any) -> str:
    try:
        outcome: str = future.result()
    except SimulationError:
        raise
    except ModuleNotFoundError as error:
        raise SimulationError(
            f"a worker of the cluster cannot run the sweep ({error}); install tributary {_core.__version__} there"
        ) from error
    except Exception as error:
        raise SimulationError(f"a worker of the cluster failed: {type(error).__name__}: {error}") from error
    return outcome


def _distributed() -> Any:
    try:
        import distributed
    except ModuleNotFoundError as error:
        raise SimulationError(
            f"a sweep on a cluster needs Dask: `pip install 'tributary-ina[dask]'` for {sys.executable}"
        ) from error
    return distributed


def _connect(distributed: Any, address: str) -> Any:
    absent = SimulationError(
        f"no Dask scheduler answers at {address}; give the address that `dask scheduler` prints, as 10.0.0.1:8786"
    )
    scheme, _, location = address.rpartition("://")
    host, _, port = location.partition(":")
    try:
        if scheme in ("", "tcp", "tls"):
            # Dask's own client would try for long, and print much when it gives up.
            socket.create_connection((host, int(port or DEFAULT_PORT)), CONNECT_TIMEOUT).close()
        return distributed.Client(address, timeout=CONNECT_TIMEOUT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise absent from error


def main(arguments: Sequence[str]) -> int:
    """Run what comes in, on the cluster that the only argument names."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    try:
        (address,) = arguments
        for number, finished in run_points(address, enumerate(line for line in sys.stdin if line.strip())):
            print(json.dumps({"number": number, "finished": finished}), flush=True)
    except SimulationError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    # Workers import the function that they run, so it must not be that of `__main__`.
    from tributary.sim.cluster import main as imported_main

    sys.exit(imported_main(sys.argv[1:]))
