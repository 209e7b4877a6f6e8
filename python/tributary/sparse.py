"""Sparse arrays, indices and values, between numpy and flat memory for the network."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tributary import _core
from tributary._arrays import Array, dtype_name, is_flat, native_copy


@dataclass(frozen=True)
class SparseBytes:
    """A rank's contribution to a sparse collective, as flat memory."""

    #: Ascending indices, int64.
    indices: Array
    #: The bytes of a value for each index, big-endian.
    values: Array
    #: A type of :meth:`tributary.Group.all_reduce`, by its name here: "f32", "bf16", "i64" ...
    dtype: str
    #: Elements of the whole array.
    size: int


def sparse_bytes(indices: npt.ArrayLike, values: npt.ArrayLike, size: int) -> tuple[SparseBytes, np.dtype[Any]]:
    """Check the types, and return the type of the result's values; indices are checked where they are sent."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"values are a list of one for each index, not an array of shape {list(array.shape)}")
    if not isinstance(size, (int, np.integer)) or size < 0:
        raise ValueError(f"the size of a sparse array is a number of elements from 0 on, not {size!r}")
    dtype = dtype_name(array)
    native = array if is_flat(array) else native_copy(array)
    brought = SparseBytes(_flat_indices(np.asarray(indices)), big_endian(native), dtype, int(size))
    return brought, native.dtype


def _flat_indices(indices: Array) -> Array:
    """The indices as native int64, in which errors name wrong ones."""
    if indices.ndim != 1:
        raise ValueError(f"indices are a list of numbers, not an array of shape {list(indices.shape)}")
    if indices.size and not np.issubdtype(indices.dtype, np.integer):
        raise TypeError(f"indices are integers, not {indices.dtype}")
    if indices.dtype == np.uint64:
        # Indices beyond int64 stay too large, and do not become negative.
        indices = np.minimum(indices, np.uint64(np.iinfo(np.int64).max))
    return np.ascontiguousarray(indices, dtype=np.int64)


def big_endian(values: Array) -> Array:
    """The bytes of flat values, swapped if this machine is little-endian; or swapped back."""
    words = values.view(f"u{values.itemsize}")
    return (words.byteswap() if sys.byteorder == "little" else words).view(np.uint8)


class SparseHandle:
    """A sparse collective under way. Its arrays were copied, and may be changed at once."""

    def __init__(self, pending: _core.Pending, total: _core.SparseSum, element: np.dtype[Any]) -> None:
        self._pending = pending
        self._total = total
        self._element = element
        self._result: tuple[Array, Array] | None = None

    def result(self, timeout: float | None = None) -> tuple[Array, Array]:
        """Wait for the result and return it: ascending indices, and a value for each.

        Raises `TimeoutError` if `timeout` seconds pass first: the collective continues, and its own timeout still
        applies. Raises the collective's error if it failed.
        """
        if self._result is None:
            if not self._pending.wait(timeout):
                raise TimeoutError(f"the collective is still under way after {timeout} s; wait again")
            indices, values = self._total.take()
            self._result = indices, big_endian(values.view(self._element)).view(self._element)
        return self._result

    def done(self) -> bool:
        """Whether the collective has ended, successfully or not."""
        return self._pending.is_done()
