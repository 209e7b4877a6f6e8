"""Between numpy arrays of any layout and the flat memory that travels: elements in C order, native, aligned."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tributary.errors import Unsupported

Array = npt.NDArray[Any]

#: numpy's names of the types that can be reduced, and ours.
DTYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
}
OPS = ("sum", "avg", "min", "max", "prod", "band", "bor", "bxor")


class Flat:
    """The input and the output of one collective as flat memory, and the way back to the caller's array."""

    def __init__(self, x: npt.ArrayLike, out: Array | None) -> None:
        """Check the arrays; copy the input where its memory cannot travel as it is."""
        array = np.asarray(x)
        self.dtype = dtype_name(array)
        if out is not None:
            check_out(array, out)
        #: What the caller gets.
        self.result: Array = np.empty_like(array, subok=False) if out is None else out
        #: What is sent and what is received into.
        self.input: Array = array if is_flat(array) else native_copy(array)
        self.output: Array = self.result if is_flat(self.result) else np.empty(array.shape, dtype=self.input.dtype)
        if overlap_apart(self.input, self.output):
            self.input = self.input.copy()

    def finish(self) -> Array:
        """Bring what was received into the caller's layout."""
        if self.output is not self.result:
            np.copyto(self.result, self.output)
        return self.result


#: What was looked up already: numpy's own names are slow to ask for.
_known: dict[np.dtype[Any], str] = {}


def dtype_name(array: Array) -> str:
    """Our name of the array's element type."""
    known = _known.get(array.dtype)
    if known is None:
        known = _known[array.dtype] = _look_up(array.dtype.name)
    return known


def _look_up(name: str) -> str:
    if name not in DTYPES:
        supported = ", ".join(DTYPES)
        raise Unsupported(f"arrays of {name} cannot be reduced; use {supported}, for example x.astype(np.float32)")
    return DTYPES[name]


def check_op(op: str) -> str:
    """The operator, if it is one."""
    if op not in OPS:
        raise Unsupported(f"there is no operator {op!r}; use {', '.join(OPS)}")
    return op


def check_out(x: Array, out: Array) -> None:
    """Refuse an `out` that cannot take the result."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out is a numpy array, not {type(out).__name__}")
    if out.shape != x.shape or out.dtype != x.dtype:
        raise ValueError(f"out is {out.dtype}{list(out.shape)} where x is {x.dtype}{list(x.shape)}")
    if not out.flags.writeable:
        raise ValueError("out is read-only")


def is_flat(array: Array) -> bool:
    """Whether the array's memory is its elements in C order, as the machine computes with them."""
    return bool(array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative)


def native_copy(array: Array) -> Array:
    """Return a flat copy."""
    native = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    return np.array(array, dtype=native, order="C", copy=True)


def overlap_apart(a: Array, b: Array) -> bool:
    """Whether two flat arrays share memory without being the same memory."""
    return a is not b and np.may_share_memory(a, b) and a.__array_interface__["data"] != b.__array_interface__["data"]
