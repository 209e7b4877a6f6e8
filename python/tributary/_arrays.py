"""Conversion between numpy arrays of any layout and flat memory for the network: C order, native, aligned."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tributary.errors import UnsupportedError

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
    """The input and the output of one collective as flat memory, and the conversion back to the caller's array."""

    def __init__(self, x: npt.ArrayLike, out: Array | None, parts: int = 1) -> None:
        """Check the arrays; copy the input where its memory cannot travel as it is.

        The result is as large as the input, or one of so many equal parts of it, along the first axis.
        """
        array = np.asarray(x)
        self.dtype = dtype_name(array)
        if parts == 1:
            shape, like = array.shape, array
        else:
            shape = part_shape(array, parts)
            like = array[: shape[0]]
        if out is not None:
            check_out(shape, array.dtype, out)
        #: The caller's result.
        self.result: Array = np.empty_like(like, subok=False) if out is None else out
        #: The memory that is sent, and the memory that receives the result.
        self.input: Array = array if is_flat(array) else native_copy(array)
        self.output: Array = self.result if is_flat(self.result) else np.empty(shape, dtype=self.input.dtype)
        if overlap_apart(self.input, self.output):
            self.input = self.input.copy()

    def finish(self) -> Array:
        """Convert the received result to the caller's layout."""
        if self.output is not self.result:
            np.copyto(self.result, self.output)
        return self.result


class Gathered:
    """The output of an all-gather as flat memory, with this rank's part in place, and the conversion back."""

    def __init__(self, x: npt.ArrayLike, out: Array | None, rank: int, parts: int) -> None:
        """Check the arrays; copy this rank's part."""
        array = np.atleast_1d(np.asarray(x))
        if array.dtype.hasobject:
            raise TypeError("an all-gather is of numpy arrays of numbers")
        shape = (parts * array.shape[0], *array.shape[1:])
        if out is not None:
            check_out(shape, array.dtype, out)
        #: The caller's result.
        self.result: Array = np.empty(shape, dtype=array.dtype) if out is None else out
        #: The memory that is sent from and received into.
        self.output: Array = self.result if self.result.flags.c_contiguous else np.empty(shape, dtype=array.dtype)
        self.output[rank * array.shape[0] : (rank + 1) * array.shape[0]] = array
        #: Bytes of each rank.
        self.part: int = array.nbytes

    def finish(self) -> Array:
        """Convert the received result to the caller's layout."""
        if self.output is not self.result:
            np.copyto(self.result, self.output)
        return self.result


#: Names that were looked up already, since numpy's own names are slow to look up.
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
        raise UnsupportedError(f"arrays of {name} cannot be reduced; use {supported}, for example x.astype(np.float32)")
    return DTYPES[name]


def check_op(op: str) -> str:
    """The operator, if it is one."""
    if op not in OPS:
        raise UnsupportedError(f"there is no operator {op!r}; use {', '.join(OPS)}")
    return op


def part_shape(x: Array, parts: int) -> tuple[int, ...]:
    """Return the shape of one of so many equal parts of an array along its first axis."""
    if x.ndim == 0 or x.shape[0] % parts:
        raise ValueError(
            f"x is {x.dtype}{list(x.shape)}, whose first axis cannot be cut into {parts} parts of one length, one for "
            "each rank"
        )
    return (x.shape[0] // parts, *x.shape[1:])


def check_out(shape: tuple[int, ...], dtype: np.dtype[Any], out: Array) -> None:
    """Refuse an `out` that cannot take the result."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out is a numpy array, not {type(out).__name__}")
    if out.shape != shape or out.dtype != dtype:
        raise ValueError(f"out is {out.dtype}{list(out.shape)} where the result is {dtype}{list(shape)}")
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
    """Whether two flat arrays overlap without being the same memory."""
    return a is not b and np.may_share_memory(a, b) and a.__array_interface__["data"] != b.__array_interface__["data"]
