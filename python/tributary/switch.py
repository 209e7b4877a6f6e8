"""A switch inside this process, for when there is no daemon."""

from __future__ import annotations

from types import TracebackType

from tributary import _core


class Switch:
    """A switch that runs in threads of this process until it is closed.

    >>> with tributary.Switch() as switch:
    ...     group = tributary.connect(switch.address, job="a", rank=0, world_size=1)
    """

    def __init__(
        self, listen: str = "127.0.0.1:0", *, cores: int = 1, memory: int | str | None = None, http: str | None = None
    ) -> None:
        """Start listening.

        Args:
            listen: "ADDR:PORT"; port 0 lets the system choose.
            cores: threads that aggregate.
            memory: for jobs and for what they share, in bytes or as "256 MiB"; `tributary switch --memory` has the same
                default.
            http: another "ADDR:PORT" for /metrics and /jobs, which are served at `listen` in any case.

        """
        self._core = _core.Switch(listen, cores, None if memory is None else str(memory), http)
        #: The address to which workers connect.
        self.address: str = self._core.address()
        #: The address of /metrics and /jobs, if they are served.
        self.http_address: str | None = self._core.http_address()

    def close(self) -> None:
        """Stop serving. Jobs that are running fail. Calling it again has no effect."""
        self._core.stop()

    def __enter__(self) -> Switch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tributary.Switch at {self.address}>"
