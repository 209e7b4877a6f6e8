"""What a caller holds of an operation under way: :class:`NetworkWork` and :class:`HostWork`."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from tributary.torch.agreement import Agreement
from tributary.torch.callbacks import Callbacks, OrderedFuture, tell
from tributary.torch.health import Health
from tributary.torch.process import Home
from tributary.torch.transit import Finish, StillUnderWay, Transit, entitle
from tributary.torch.untraced import untraced

_NO_TIMEOUT = timedelta(0)
#: How long the word of the others is waited for after Gloo has failed: it is under way, or its sender is dead.
_LAST_WORDS = timedelta(seconds=2)


class Result(list[torch.Tensor]):
    """The tensors of an operation, as its future brings them; and the rank that a receive heard from."""

    source_rank: int = -1


#: In each thread the work whose future was asked for last.
_here = threading.local()


def last_asked() -> _Work | None:
    """The work whose future this thread asked for last; forgets it."""
    work, _here.asked = getattr(_here, "asked", None), None
    return work


@untraced
class _Work(Work):
    """What both kinds share: one outcome, decided once, and futures that hear of it."""

    def __init__(
        self,
        title: str,
        tensors: Sequence[torch.Tensor],
        finish: Finish | None,
        callbacks: Callbacks,
        health: Health,
    ) -> None:
        super().__init__()
        self._callbacks = callbacks
        self._health = health
        #: For messages: "all_reduce 12 of group default_pg".
        self.title = title
        self._home = Home()
        self._result = Result(tensors)
        self._finish = finish
        self._lock = threading.Lock()
        self._ended = False
        self._error: BaseException | None = None
        self._future: torch.futures.Future[Any] | None = None
        self._handed: torch.futures.Future[Any] | None = None
        self._ordered: OrderedFuture | None = None

    def _conclude(self, error: BaseException | None) -> None:
        """Decide the outcome, unless another thread has; bring the result to the caller's tensors."""
        futures: list[torch.futures.Future[Any] | None] = []
        with self._lock:
            if not self._ended:
                if error is None and self._finish is not None:
                    try:
                        self._finish()
                    except Exception as failed:
                        error = failed
                if error is not None:
                    self._health.note(error)
                    entitle(error, self.title)
                self._error, self._ended, self._finish = error, True, None
                futures = [self._ordered, self._future]
        # Outside of the lock: what hangs on the futures may ask us again.
        for future in futures:
            self._tell(future)
        if self._error is not None:
            raise self._error

    def _tell(self, future: torch.futures.Future[Any] | None) -> None:
        if future is not None:
            tell(future, self._result if self._error is None else self._error)

    def get_future(self) -> torch.futures.Future[Any]:
        """A future that brings the tensors, as C++ knows it."""
        _here.asked = self
        with self._lock:
            late = self._ended and self._future is None
            if self._handed is None:
                self._future = torch.futures.Future(devices=self._devices())
                # PyTorch's `set_exception` is for Python alone: C++ sees a value, and DDP takes it for gradients and
                # crashes. What a callback raises is an error in both worlds.
                self._handed = self._future.then(_value)
            handed = self._handed
        if late:
            self._tell(self._future)
        return handed

    def ordered_future(self) -> OrderedFuture | None:
        """A future that brings the tensors, as Python gets it; None where the end is not told by itself."""
        with self._lock:
            late = self._ended and self._ordered is None
            if self._ordered is None:
                self._ordered = OrderedFuture(self._callbacks, self._devices(), self.settle)
            ordered = self._ordered
        if late:
            self._tell(ordered)
        return ordered

    def settle(self) -> None:
        """Bring the end about, where this thread can; its error stays for the caller."""

    def _devices(self) -> list[torch.device]:
        # A future that brings tensors of a GPU must say of which.
        found = {tensor.device for tensor in self._result if tensor.device.type == "cuda"}
        return sorted(found, key=lambda device: device.index)

    def is_success(self) -> bool:
        """Whether the operation has ended well."""
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """Why the operation failed, if it has."""
        return self._error if self.is_completed() else None

    def result(self) -> list[torch.Tensor]:
        """The tensors of an operation that has ended."""
        return self._result

    def synchronize(self) -> None:
        """As :meth:`wait`."""
        self.wait()


@untraced
class NetworkWork(_Work):
    """An operation in the network: its transit, and what remains to do with what that brings."""

    def __init__(
        self,
        title: str,
        tensors: Sequence[torch.Tensor],
        transit: Transit,
        finish: Finish | None,
        completer: Completer,
        callbacks: Callbacks,
        health: Health,
    ) -> None:
        super().__init__(title, tensors, finish, callbacks, health)
        self._transit = transit
        self._completer = completer

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Wait until the result is in the caller's tensors; raise why the operation failed."""
        self._home.refuse_fork(self.title)
        error: Exception | None = None
        if not self._ended:
            try:
                self._transit.wait(timeout)
            except StillUnderWay:
                raise
            except Exception as failed:
                error = failed
        self._conclude(error)
        return True

    def is_completed(self) -> bool:
        """Whether the operation has ended, well or not."""
        if not self._ended and self._transit.is_done():
            self.settle()
        return self._ended

    def get_future(self) -> torch.futures.Future[Any]:
        """A future that brings the tensors, whether or not anybody waits."""
        future = super().get_future()
        if not self._ended:
            self._completer.see_to(self)
        return future

    def settle(self) -> None:
        """Wait for the end; its error stays for the caller."""
        try:
            self.wait()
        except Exception:
            if not self._ended:
                raise


@untraced
class HostWork(_Work):
    """An operation on the host path: Gloo's own work, under our name, and what ranks say beside it that they bring."""

    def __init__(
        self,
        title: str,
        tensors: Sequence[torch.Tensor],
        inner: Any,
        finish: Finish | None,
        completer: Completer,
        callbacks: Callbacks,
        health: Health,
        agreement: Agreement | None,
        give_up: Callable[[], None],
    ) -> None:
        super().__init__(title, tensors, finish, callbacks, health)
        self._inner = inner
        self._completer = completer
        self._agreement = agreement
        self._give_up = give_up
        self._follows = False
        self._tells_by_itself = True

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Wait until the result is in the caller's tensors; raise why the operation failed."""
        self._home.refuse_fork(self.title)
        if not self._ended:
            self._agree(timeout)
            try:
                self._inner.wait(timeout)
            except RuntimeError as error:
                self._conclude(error)
            self._note_source()
        self._conclude(None)
        return True

    def _agree(self, timeout: timedelta) -> None:
        """Wait until all ranks have said what they bring; without that Gloo's part never ends."""
        if self._agreement is None or self._ended:
            return
        try:
            self._agreement.wait(timeout)
        except StillUnderWay:
            raise
        except Exception as error:
            self._give_up()
            self._conclude(error)

    def settle(self) -> None:
        """Wait until it is clear that Gloo's part can end; Gloo tells of its end."""
        with contextlib.suppress(Exception):
            self._agree(_NO_TIMEOUT)

    def is_completed(self) -> bool:
        """Whether the operation has ended. Gloo's sends and receives say so only once they were waited for."""
        if self._agreement is not None and self._agreement.is_done():
            self.settle()
        if not self._ended and self._inner.is_completed():
            try:
                self.wait()
            except Exception:
                if not self._ended:
                    raise
        return self._ended

    def get_future(self) -> torch.futures.Future[Any]:
        """A future that brings the tensors."""
        with self._lock:
            follow = not self._ended and not self._follows
            self._follows = True
        if follow:
            self._follow()
        return super().get_future()

    def _follow(self) -> None:
        try:
            inner = self._inner.get_future()
        except RuntimeError:
            # Gloo's sends and receives have none: ours ends when somebody has waited.
            self._tells_by_itself = False
            return
        inner.add_done_callback(self._hear)
        if self._agreement is not None:
            # Gloo does not tell of an operation that ranks disagree on.
            self._completer.see_to(self)

    def ordered_future(self) -> OrderedFuture | None:
        """As for all works. A callback that waits for a send would keep all others waiting."""
        return super().ordered_future() if self._tells_by_itself else None

    def _hear(self, inner: torch.futures.Future[Any]) -> None:
        # Gloo counts its work as under way until its future's callbacks have returned: it cannot be waited for here.
        error: RuntimeError | None = None
        try:
            inner.value()
        except RuntimeError as failed:
            error = failed
        # The error is the caller's, through our futures.
        with contextlib.suppress(Exception):
            # A rank that hears first that ranks disagree may be gone before the others have heard: what all have said
            # tells more than its closed connection.
            with contextlib.suppress(StillUnderWay):
                self._agree(_NO_TIMEOUT if error is None else _LAST_WORDS)
            self._conclude(error)

    def _source_rank(self) -> int:
        """The rank that a receive from anybody heard from."""
        self.wait()
        return self._result.source_rank

    source_rank = _source_rank

    def _note_source(self) -> None:
        with contextlib.suppress(RuntimeError):  # Only a receive has one.
            self._result.source_rank = self._inner._source_rank()


@untraced
class DoneWork(_Work):
    """Something that has ended well."""

    def __init__(self, title: str, callbacks: Callbacks, health: Health, tensors: Sequence[torch.Tensor] = ()) -> None:
        super().__init__(title, tensors, None, callbacks, health)
        self._conclude(None)

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Nothing is left to wait for."""
        return True

    def is_completed(self) -> bool:
        """True."""
        return True


class Completer:
    """A thread that waits for operations whose callers do not: those with futures, and those with work left to do."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[NetworkWork | HostWork | None] = queue.SimpleQueue()
        self._name = name
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def see_to(self, work: NetworkWork | HostWork) -> None:
        """End the work as soon as its transfers are in."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self._queue.put(work)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            work.settle()
            del work

    def close(self) -> None:
        """End the thread; call it once no transfer can take long any more."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            if thread is not threading.current_thread():
                thread.join(timeout=5.0)


def _value(future: torch.futures.Future[Any]) -> Any:
    return future.value()
