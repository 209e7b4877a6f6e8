"""Callbacks on the futures of a group's operations: one at a time, in the order in which they were attached.

PyTorch calls a callback in whichever thread ends its future, or at once where that has ended before. Collectives that
callbacks start would then come in another order on each rank, and a callback that waits for one would hold up the
thread that brings its result. Here a thread of the group's own calls them all, in the order of the calls of ``then``,
which is the program's and so the same on every rank; and nothing but callbacks waits for that thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tributary.torch.transit import without_frames
from tributary.torch.untraced import untraced

log = logging.getLogger("tributary.torch")


class _Here(threading.local):
    """What this thread is at."""

    #: How many callbacks it runs that PyTorch calls right here.
    depth = 0
    #: The callbacks whose thread it is.
    callbacks: Callbacks | None = None


_here = _Here()


@contextlib.contextmanager
def _in_callback() -> Iterator[None]:
    _here.depth += 1
    try:
        yield
    finally:
        _here.depth -= 1


def is_in_callback() -> bool:
    """Whether this thread runs a callback that PyTorch calls right here, because a future of this package has ended."""
    return _here.depth > 0


def complete(future: torch.futures.Future[Any], outcome: Any) -> None:
    """End a future with a value, or with an error if the value is one."""
    with _in_callback():
        if not isinstance(outcome, BaseException):
            future.set_result(outcome)
        elif isinstance(outcome, Exception):
            future.set_exception(without_frames(outcome))
        else:
            future.set_exception(RuntimeError(str(outcome)))


@untraced
class OrderedFuture(torch.futures.Future[Any]):
    """A future whose callbacks the group's thread calls in order. Made by works, and by :meth:`then`."""

    def __init__(
        self, callbacks: Callbacks, devices: list[torch.device], finish: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(devices=list(devices))
        self._callbacks, self._on, self._finish = callbacks, devices, finish

    def then(self, callback: Callable[[Any], Any]) -> OrderedFuture:
        """Call back once this has ended; the returned future gets the callback's value or error."""
        child = OrderedFuture(self._callbacks, self._on)
        self._callbacks.attach(_Call(self, callback, child))
        return child

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        """Call back once this has ended; the callback's error is logged."""
        self._callbacks.attach(_Call(self, callback, None))

    def wait(self) -> Any:
        """Wait for the end, and return the result or raise the error."""
        self._callbacks.call_until(self)
        if not self.done():
            self._finish()
        return self._outcome(super().wait)

    def value(self) -> Any:
        """The result, or the error raised, of a future that has ended."""
        return self._outcome(super().value)

    def _outcome(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except Exception as error:
            # PyTorch keeps this one.
            error.__traceback__ = None
            raised = without_frames(error)
        raise raised


@dataclass(frozen=True)
class _Call:
    parent: OrderedFuture
    callback: Callable[[Any], Any]
    child: OrderedFuture | None


class Callbacks:
    """A group's callbacks, and the thread that calls them."""

    def __init__(self, name: str) -> None:
        #: The group's name.
        self.name = name
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        #: The calls that the program attached; then, for each callback that runs inside another, the calls that it
        #: attached.
        self._waiting: list[deque[_Call]] = [deque()]

    @staticmethod
    def current() -> Callbacks | None:
        """The callbacks whose thread this is, if it is such a thread."""
        return _here.callbacks

    def attach(self, call: _Call) -> None:
        """Queue a call. Calls that a callback attaches come before those that the program attached after it."""
        if Callbacks.current() is self:
            self._waiting[-1].append(call)
            return
        with self._lock:
            self._waiting[0].append(call)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"callbacks-{self.name}", daemon=True)
                self._thread.start()
            self._lock.notify()

    def _run(self) -> None:
        _here.callbacks = self
        while True:
            with self._lock:
                while not self._waiting[0] and not self._closed:
                    self._lock.wait()
                if not self._waiting[0]:
                    return
                call = self._waiting[0].popleft()
            self._call(call)
            del call

    def _call(self, call: _Call) -> None:
        # The error belongs to the future's value, which the callback may read.
        with contextlib.suppress(Exception):
            call.parent.wait()
        self._waiting.append(deque())
        try:
            value = call.callback(call.parent)
        except Exception as error:
            if call.child is None:
                log.exception("a callback of an operation of group %s failed", self.name)
            else:
                complete(call.child, error)
        else:
            if call.child is not None:
                complete(call.child, value)
        while self._waiting[-1]:
            self._call(self._waiting[-1].popleft())
        self._waiting.pop()

    def call_until(self, future: OrderedFuture) -> None:
        """For a callback that waits for another callback's value: run the calls before that one, and that one."""
        if Callbacks.current() is not self:
            return
        for waiting in reversed(self._waiting):
            while not future.done() and any(call.child is future for call in waiting):
                self._call(waiting.popleft())

    def close(self) -> None:
        """End the thread once it has called what is left; no operation may take long any more."""
        with self._lock:
            self._closed = True
            thread = self._thread
            self._lock.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5.0)
