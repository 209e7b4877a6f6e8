"""The exceptions. The text of each is a sentence that says what happened and what to do."""

from collections.abc import Sequence


class TributaryError(RuntimeError):
    """The base of every error that Tributary raises."""


class ConnectError(TributaryError, ConnectionError):
    """The job could not be joined: no switch, a switch that is full, ranks that never came or that differ."""


class CollectiveError(TributaryError):
    """A collective failed. The group cannot be used afterwards; connect again."""


class CollectiveTimeoutError(CollectiveError, TimeoutError):
    """Some ranks did not contribute in time.

    Attributes:
        missing: the ranks from which the switch has received nothing, ascending.
    """

    def __init__(self, message: str, missing: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.missing: tuple[int, ...] = tuple(missing)


class RankLostError(CollectiveError, ConnectionError):
    """Some ranks have left the job or died, and what is under way lacks their contributions.

    Attributes:
        missing: the ranks that are gone, ascending.
    """

    def __init__(self, message: str, missing: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.missing: tuple[int, ...] = tuple(missing)


class SharedMemoryError(ConnectError):
    """The ranks cannot share memory: they run on several hosts, in separate containers, or as several users."""


class SwitchLostError(CollectiveError, ConnectionError):
    """The switch does not answer, or no longer knows the job."""


class ServerLostError(CollectiveError, ConnectionError):
    """A parameter server has ended or died, and what is under way lacks its sums.

    Attributes:
        servers: the servers that are gone, by their numbers in the job, ascending.
    """

    def __init__(self, message: str, servers: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.servers: tuple[int, ...] = tuple(servers)


class MismatchError(CollectiveError, ValueError):
    """Ranks brought different sizes, types or operators to the same collective.

    Attributes:
        brought: of ranks that the error names, as far as it is known, what each brought: (rank, elements, type). A
            barrier is a sum of no "i32" elements.
    """

    def __init__(self, message: str, brought: Sequence[tuple[int, int, str]] = ()) -> None:
        super().__init__(message)
        self.brought: tuple[tuple[int, int, str], ...] = tuple((rank, count, kind) for rank, count, kind in brought)


class UnsupportedError(TributaryError, TypeError):
    """The protocol cannot sum this element type with this operator; nothing was sent."""


class ClosedError(TributaryError):
    """The group was closed."""


class ConfigError(TributaryError, ValueError):
    """A wrong description: of an experiment for the simulator, or of a sum to be computed on this machine."""


class SimulationError(TributaryError):
    """A simulation that could not be done, or whose result is wrong or incomplete."""
