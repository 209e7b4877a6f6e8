"""Corrections to PyTorch: the ``Work`` of a backend that is written in Python answers all questions.

PyTorch hands a Python backend's work to its callers in a holder that passes on ``wait`` and ``get_future`` only. It
says of itself that it is never completed, and knows neither exception nor result nor source. The future knows them all.
Where the holder's own answer is "not yet" or "I do not know", ask the future. Works of other backends give the same
answers as before: a work is completed when its future is. And the future of one of our works is one whose callbacks
come in order (``callbacks``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._C._distributed_c10d import Work

from tributary.torch.untraced import Hidden
from tributary.torch.work import take_last_work


def apply() -> None:
    """Correct the class. Harmless when called again."""
    if getattr(Work.is_completed, "corrected", False):
        return
    methods = {name: _corrected(getattr(Work, name), answer) for name, answer in _ANSWERS.items()}
    for name, method in (methods | {"get_future": _ordering(Work.get_future)}).items():
        setattr(Work, name, Hidden(method))


def _ordering(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Give Python the future whose callbacks come in order, in place of C++'s, if the work is one of ours."""

    def get_future(self: Any) -> Any:
        if type(self) is not Work:
            return original(self)
        take_last_work()
        future = original(self)
        work = take_last_work()
        return work.ordered_future() or future if work is not None else future

    get_future.__doc__ = original.__doc__
    return get_future


def _corrected(original: Callable[[Any], Any], answer: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    def method(self: Any) -> Any:
        if type(self) is not Work:
            return original(self)
        try:
            own = original(self)
        except RuntimeError:
            own = _UNKNOWN
        if own not in (_UNKNOWN, False, None, []):
            return own
        try:
            future = self.get_future()
        except RuntimeError:
            # A work without a future has only its own answer.
            return original(self)
        return answer(future, own)

    method.__name__ = method.__qualname__ = getattr(original, "__name__", "method")
    method.__doc__ = original.__doc__
    method.corrected = True  # type: ignore[attr-defined]
    return method


_UNKNOWN = object()


def _is_completed(future: Any, own: Any) -> bool:
    return bool(future.done())


def _exception(future: Any, own: Any) -> BaseException | None:
    if not future.done():
        return None
    try:
        future.value()
    except Exception as error:
        return error
    return None


def _is_success(future: Any, own: Any) -> bool:
    return bool(future.done()) and _exception(future, own) is None


def _result(future: Any, own: Any) -> Any:
    return future.value() if future.done() else []


def _source(future: Any, own: Any) -> Any:
    value = future.value() if future.done() else None
    return getattr(value, "source_rank", -1)


_ANSWERS: dict[str, Callable[[Any, Any], Any]] = {
    "is_completed": _is_completed,
    "is_success": _is_success,
    "exception": _exception,
    "result": _result,
    "source_rank": _source,
    "_source_rank": _source,
}
