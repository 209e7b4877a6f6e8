"""The steps in which ranks join something together, in a store: a failure of one rank ends the wait of all others."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import torch.distributed as dist

from tributary.errors import ConnectError

#: How often a rank that waits elsewhere asks the store for failures of others.
_POLL_S = 0.1

_FAILURE = "failure"


class OtherRankError(ConnectError):
    """Another rank could not join. Its own sentence says why."""


class JoinSteps:
    """One rank's way through a join. All ranks take its steps in the same order."""

    def __init__(
        self, store: dist.Store, name: str, rank: int, size: int, patience: timedelta, waits: tuple[str, ...]
    ) -> None:
        """Take no step yet; `waits` are all steps at which a rank may wait."""
        self._store, self._name = store, name
        self._rank, self._size, self._patience, self._waits = rank, size, patience, waits
        self._next_poll = 0.0

    def _key(self, what: str) -> str:
        return f"{self._name}/{what}"

    def publish(self, step: str, value: str) -> None:
        """Say something to all other ranks, which :meth:`receive` it."""
        self._store.set(self._key(step), value)

    def receive(self, step: str, missing: str) -> str:
        """Wait for what a rank publishes; `missing` says what did not come in time."""
        self._wait(step, lambda: missing)
        return self._store.get(self._key(step)).decode()

    def published(self, step: str) -> str | None:
        """What a rank has published by now."""
        key = self._key(step)
        return self._store.get(key).decode() if self._store.check([key]) else None

    def gather(self, step: str) -> None:
        """Wait until all ranks have come to this step."""
        self._store.set(self._key(f"{step}/{self._rank}"), "1")
        if self._store.add(self._key(f"{step}/count"), 1) == self._size:
            self._store.set(self._key(step), "1")
        else:
            self._wait(step, lambda: self._missing(step))

    def _missing(self, step: str) -> str:
        missing = [rank for rank in range(self._size) if not self._store.check([self._key(f"{step}/{rank}")])]
        who = f"rank {missing[0]} has" if len(missing) == 1 else f"ranks {', '.join(map(str, missing))} have"
        return f"{who} not come, of {self._size}"

    def _wait(self, step: str, missing: Callable[[], str]) -> None:
        try:
            self._store.wait([self._key(step)], self._patience)
        except RuntimeError as error:  # Not every Store has an error of its own.
            raise ConnectError(f"timed out after {self._patience.total_seconds():g} s: {missing()}") from error
        self._raise_failure()

    def poll_failure(self) -> None:
        """Raise the failure of another rank, if there is one: for a rank that waits for something else meanwhile."""
        if time.monotonic() >= self._next_poll:
            self._next_poll = time.monotonic() + _POLL_S
            self._raise_failure()

    def _raise_failure(self) -> None:
        failure = self.published(_FAILURE)
        if failure is not None:
            raise OtherRankError(json.loads(failure))

    @contextlib.contextmanager
    def in_common(self) -> Iterator[None]:
        """Make a failure of this rank one of all ranks, wherever they wait."""
        try:
            yield
        except OtherRankError:
            raise
        except BaseException as error:
            failure = self._report(error)
            # It may be a consequence of the other one: a switch that the other rank has stopped.
            if isinstance(error, ConnectError) and not failure.endswith(str(error)):
                raise OtherRankError(failure) from error
            raise

    def _report(self, error: BaseException) -> str:
        """Report the error, unless there is a failure; the sentence of the failure that there is."""
        with contextlib.suppress(RuntimeError):  # The store may have failed, too.
            failure = self.published(_FAILURE)
            if failure is not None:
                return str(json.loads(failure))
            self.fail(error)
        return str(error)

    def fail(self, error: BaseException) -> None:
        """End the waits of all ranks: each raises this error's sentence."""
        sentence = str(error) or type(error).__name__
        self.publish(_FAILURE, json.dumps(f"rank {self._rank} could not join: {sentence}"))
        for step in self._waits:
            self.publish(step, "")
