"""Conversion between arrays of any layout and flat memory for the network: C order, native, aligned."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from tributary.errors import UnsupportedError

Array = npt.NDArray[Any]


class SupportsDLPack(Protocol):
    """A tensor of another library."""

    def __dlpack__(self) -> Any:
        """Export the memory."""


#: What a collective takes: lists of numbers, and everything that shares its memory.
ArrayLike: TypeAlias = npt.ArrayLike | SupportsDLPack

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


def as_array(x: Any) -> Array:
    """The array over the memory of an array, a DLPack tensor on the CPU or a buffer; a new one of lists."""
    if isinstance(x, np.ndarray):
        return x
    if str(getattr(x, "dtype", "")) == "torch.bfloat16":
        return _bfloat16(x)
    if hasattr(x, "__dlpack__"):
        return np.from_dlpack(x)
    return np.asarray(x)


def _bfloat16(tensor: Any) -> Array:
    """The array over the memory of PyTorch's bfloat16, which numpy takes over no interface."""
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        raise UnsupportedError(
            "numpy has bfloat16 only where ml_dtypes is installed: pip install 'tributary-ina[bf16]'"
        ) from None
    import torch

    array: Array = np.from_dlpack(tensor.view(torch.int16)).view(bfloat16)
    return array


def as_target(x: Any, name: str) -> Array:
    """Like :func:`as_array`, only for what has memory that can be written in place."""
    if not isinstance(x, np.ndarray) and not hasattr(x, "__dlpack__"):
        try:
            memoryview(x)
        except TypeError:
            raise TypeError(f"{name} is an array, a DLPack tensor or a buffer, not {type(x).__name__}") from None
    return as_array(x)


class Operands:
    """The memory of one collective, and the conversion of the result to the caller's array."""

    def __init__(self, input: Array, output: Array, dtype: str, target: Array, result: Any) -> None:
        #: The memory that is sent, and the memory that receives the result.
        self.input, self.output = input, output
        #: The type that the network reduces.
        self.dtype = dtype
        #: The array that the caller gets or gave.
        self._target = target
        self._result = result

    def finish(self) -> Any:
        """Convert the received result to the caller's layout, and return what the caller gets."""
        if self.output is not self._target:
            np.copyto(self._target, self.output)
        return self._result


def reduce_operands(x: Any, out: Any, shards: int = 1) -> Operands:
    """Check the arrays of a reduction; copy the input if its memory cannot travel as it is.

    The result is as large as the input, or one of several equal shards of it along the first axis.
    """
    array = as_array(x)
    dtype = dtype_name(array)
    if shards == 1:
        shape, like = array.shape, array
    else:
        shape = shard_shape(array, shards)
        like = array[: shape[0]]
    target = np.empty_like(like, subok=False) if out is None else checked_out(shape, array.dtype, out)
    sent = array if is_flat(array) else native_copy(array)
    received = target if is_flat(target) else np.empty(shape, dtype=sent.dtype)
    if overlaps_shifted(sent, received):
        sent = sent.copy()
    return Operands(sent, received, dtype, target, target if out is None else out)


def gather_operands(x: Any, out: Any, rank: int, size: int) -> tuple[Operands, int]:
    """Check the arrays of an all-gather and copy this rank's shard into place; also returns the bytes of a shard."""
    array = np.atleast_1d(as_array(x))
    if array.dtype.hasobject:
        raise TypeError("an all-gather is of numpy arrays of numbers")
    shape = (size * array.shape[0], *array.shape[1:])
    target = np.empty(shape, dtype=array.dtype) if out is None else checked_out(shape, array.dtype, out)
    received = target if target.flags.c_contiguous else np.empty(shape, dtype=array.dtype)
    received[rank * array.shape[0] : (rank + 1) * array.shape[0]] = array
    return Operands(received, received, "u8", target, target if out is None else out), array.nbytes


#: Names that were found already, since numpy takes long to name a type.
_known: dict[np.dtype[Any], str] = {}


def dtype_name(array: Array) -> str:
    """Our name of the array's element type."""
    known = _known.get(array.dtype)
    if known is None:
        known = _known[array.dtype] = _find_name(array.dtype.name)
    return known


def _find_name(name: str) -> str:
    if name not in DTYPES:
        supported = ", ".join(DTYPES)
        raise UnsupportedError(f"arrays of {name} cannot be reduced; use {supported}, for example x.astype(np.float32)")
    return DTYPES[name]


def check_op(op: str) -> str:
    """The operator, if it is one."""
    if op not in OPS:
        raise UnsupportedError(f"there is no operator {op!r}; use {', '.join(OPS)}")
    return op


def shard_shape(x: Array, shards: int) -> tuple[int, ...]:
    """Return the shape of one of several equal shards of an array along its first axis."""
    if x.ndim == 0 or x.shape[0] % shards:
        raise ValueError(
            f"x is {x.dtype}{list(x.shape)}, whose first axis cannot be cut into {shards} shards of one length, one "
            "for each rank"
        )
    return (x.shape[0] // shards, *x.shape[1:])


def checked_out(shape: tuple[int, ...], dtype: np.dtype[Any], out: Any) -> Array:
    """The array over an `out` that can take the result; refuses any other."""
    target = as_target(out, "out")
    if target.shape != shape or target.dtype != dtype:
        raise ValueError(f"out is {target.dtype}{list(target.shape)} where the result is {dtype}{list(shape)}")
    if not target.flags.writeable:
        raise ValueError("out is read-only")
    return target


def is_flat(array: Array) -> bool:
    """Whether the array's memory is its elements in C order, as the machine computes with them."""
    return bool(array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative)


def native_copy(array: Array) -> Array:
    """Return a flat copy."""
    native = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    return np.array(array, dtype=native, order="C", copy=True)


def overlaps_shifted(a: Array, b: Array) -> bool:
    """Whether two flat arrays overlap without being the same memory."""
    return a is not b and np.may_share_memory(a, b) and a.__array_interface__["data"] != b.__array_interface__["data"]
