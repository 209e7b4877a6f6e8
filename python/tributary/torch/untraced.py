"""Hides the backend from ``torch.compile``, since it is not part of anybody's model.

While a compiled step runs, Dynamo traces every Python function that is called, also those that PyTorch's C++ calls for
a gradient's collective. It cannot trace locks and threads, and warns of each. The same methods hide their frames from
the tracebacks of our errors: a sentence says what happened, and frames would only hide the caller's own line.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from tributary.errors import TributaryError

_Kind = TypeVar("_Kind", bound=type)


def untraced(kind: _Kind) -> _Kind:
    """Hide the public methods of a class, and everything that they call."""
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(kind, name, Hidden(_brief(method)))
    return kind


def _brief(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, with errors that show one frame of this package, whatever it calls."""

    @functools.wraps(method)
    def call(*words: Any, **named: Any) -> Any:
        try:
            return method(*words, **named)
        except TributaryError as error:
            raise error.with_traceback(None) from error.__cause__

    return call


class Hidden:
    """A method that is hidden with everything that it calls."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method, self._disabled = method, None
        self.__doc__ = method.__doc__

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        """The method of an object. Dynamo does not compile this function, since it has no tensor (2.14: see below)."""
        if owner is None:
            return self._method
        # Importing Dynamo takes a second; while it is not imported, nothing is compiled.
        if "torch._dynamo" not in sys.modules:
            return self._method.__get__(owner, kind)
        if self._disabled is None:
            self._disabled = torch.compiler.disable(self._method)
        return self._disabled.__get__(owner, kind)  # type: ignore[attr-defined]


if tuple(int(number) for number in torch.__version__.split(".")[:2]) < (2, 15):
    # PyTorch 2.14's Dynamo compiles it all the same, and then the search for the method fails with "does not support
    # broadcast". `torch.compiler.disable` would import Dynamo.
    from torch._C._dynamo import eval_frame

    _SKIP = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT)
    eval_frame.set_code_exec_strategy(Hidden.__get__.__code__, _SKIP)
