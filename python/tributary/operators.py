"""Custom operators, which run in the switch: from an expression, from WebAssembly or from C.

>>> op = tributary.Operator.expression("a if abs(a) > abs(b) else b", dtype="f32")
>>> with tributary.connect("10.0.0.1", job="train", rank=0, world_size=4, protocol="flare", operators=[op]) as group:
...     largest = group.all_reduce(x, op=op)

`docs/operators.md` goes through all of it in ten minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tributary import _core
from tributary._arrays import Array, Operands, as_array, checked_out
from tributary.errors import ConfigError

_SCALARS = {
    "int8": "i8",
    "uint8": "u8",
    "int16": "i16",
    "uint16": "u16",
    "int32": "i32",
    "uint32": "u32",
    "int64": "i64",
    "uint64": "u64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
}
_NAMES = {name: numpy for numpy, name in _SCALARS.items()}


class Operator:
    """An operator that makes one element out of two. Made by one of its class methods, and checked then.

    The self-test tries it with ten thousand elements. What it finds wrong is a `ConfigError` with an example; what its
    results depend on is :attr:`needs`.
    """

    def __init__(self, core: _core.Operator) -> None:
        """Made by a class method."""
        self._core = core

    @classmethod
    def expression(cls, text: str, dtype: npt.DTypeLike, name: str = "expression") -> Operator:
        """Compile an expression over `a`, the left element, and `b`, the right one.

        An element with fields takes a line "field = expression" for each, and other lines name values for those below.

        Args:
            text: for example "a if abs(a) > abs(b) else b".
            dtype: "f32" and its like, or a numpy type; a structured one has fields.
            name: what it is called in sentences.

        """
        return cls(_made(_core.Operator.expression, text, element_of(dtype), name))

    @classmethod
    def from_wat(cls, text: str, dtype: npt.DTypeLike | None = None, name: str = "operator") -> Operator:
        """Take WebAssembly as text."""
        return cls(_made(_core.Operator.wat, text, None if dtype is None else element_of(dtype), name))

    @classmethod
    def from_wasm(
        cls, module: bytes | str | PathLike[str], dtype: npt.DTypeLike | None = None, name: str = "operator"
    ) -> Operator:
        """Take a module: its bytes, or its file."""
        code = module if isinstance(module, bytes) else Path(module).read_bytes()
        return cls(_made(_core.Operator.wasm, code, None if dtype is None else element_of(dtype), name))

    @classmethod
    def from_file(cls, path: str | PathLike[str], dtype: npt.DTypeLike | None = None) -> Operator:
        """Take a file (.expr, .wat, .c where clang is, .wasm), or an operator that comes along, by its name."""
        return cls(_made(_core.Operator.file, fspath(path), None if dtype is None else element_of(dtype)))

    @classmethod
    def from_c(cls, path: str | PathLike[str], dtype: npt.DTypeLike | None = None) -> Operator:
        """Compile a file of C, where clang and wasm-ld are."""
        return cls.from_file(path, dtype)

    @property
    def name(self) -> str:
        """The operator's name."""
        return self._core.name

    @property
    def sha256(self) -> str:
        """The hash that identifies it: the same on every rank and at every switch."""
        return self._core.sha256

    @property
    def element(self) -> str:
        """The type of its elements, as `tributary operator` writes it."""
        return self._core.element

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of its elements; raw bytes if the operator does not name their type."""
        return dtype_of(self.element)

    @property
    def needs(self) -> str:
        """What results depend on: "nothing", or the order of a "tree", or that of "ranks"."""
        return self._core.needs

    @property
    def examples(self) -> list[str]:
        """Elements that show why: two that do not commute, three that do not associate."""
        return self._core.examples

    @property
    def module(self) -> bytes:
        """The module's bytes, to be stored or sent."""
        return self._core.module

    def reduce(self, arrays: Sequence[npt.ArrayLike]) -> Array:
        """Compute on this machine, with the same module, what `all_reduce` gives over one switch.

        With `reproducible=ranks`, the default of an operator that does not commute, it gives the same over any.

        Args:
            arrays: each rank's input, by rank; of one shape and of the operator's type.

        """
        flat = [custom_operands(self, x, None) for x in arrays]
        if not flat or any(each.input.shape != flat[0].input.shape for each in flat):
            raise ConfigError("reduce takes an array of each rank, of one shape")
        try:
            result = self._core.reduce([each.input.tobytes() for each in flat])
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return np.frombuffer(bytearray(result), dtype=flat[0].input.dtype).reshape(flat[0].input.shape)

    def __repr__(self) -> str:
        """Name, hash and elements."""
        return f"<Operator {self.name} {self.sha256[:8]} of {self.element}>"


def _made(make: Any, *arguments: Any) -> _core.Operator:
    try:
        made: _core.Operator = make(*arguments)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return made


def element_of(dtype: npt.DTypeLike) -> str:
    """Return a numpy type, or its name here, as `tributary operator` writes it."""
    if isinstance(dtype, str) and (dtype in _NAMES or ":" in dtype):
        return dtype
    of = np.dtype(dtype)
    if of.names is not None:
        return _fields(of)
    if of.kind == "c":
        scalar = "f32" if of.itemsize == 8 else "f64"
        return f"re:{scalar},im:{scalar}"
    if of.kind == "V" and of.name not in _SCALARS:
        return f"opaque:{of.itemsize}"
    if of.name not in _SCALARS or not of.isnative:
        raise ConfigError(
            f"elements of {of} are not possible: use {', '.join(_SCALARS)}, or a structured type of these"
        )
    return _SCALARS[of.name]


def _fields(of: np.dtype[Any]) -> str:
    fields, end = [], 0
    for name, (field, offset, *_) in (of.fields or {}).items():
        inner = element_of(field) if field.names is None and field.shape == () else ""
        if not inner or (":" in inner and not inner.startswith("opaque:")):
            raise ConfigError(f"the field {name} is {field}: fields are single numbers")
        if offset != end:
            raise ConfigError("the type has gaps between its fields, which would travel too: leave align=True out")
        fields.append(f"{name}:{inner}")
        end = offset + field.itemsize
    if end != of.itemsize:
        raise ConfigError("the type has a gap at its end, which would travel too: leave align=True out")
    return ",".join(fields)


def dtype_of(element: str) -> np.dtype[Any]:
    """Return the numpy type of elements; two bytes of bfloat16 are raw ones."""

    def scalar(text: str) -> str:
        if text.startswith("opaque:"):
            return f"V{text.removeprefix('opaque:')}"
        return "V2" if text == "bf16" else _NAMES[text]

    if element in _NAMES or element.startswith("opaque:"):
        return np.dtype(scalar(element))
    fields = [field.split(":", 1) for field in element.split(",")]
    return np.dtype([(name, scalar(of)) for name, of in fields])


def custom_operands(op: Operator, x: Any, out: Any) -> Operands:
    """Check the arrays of a collective with a custom operator; they travel as bytes."""
    array = as_array(x)
    element = element_of(array.dtype)
    if array.dtype.itemsize != op.dtype.itemsize or (
        element != op.element and not op.element.startswith("opaque:") and array.dtype.kind != "V"
    ):
        raise ConfigError(f"x has elements of {element}, and {op.name} is for {op.element}")
    target = np.empty(array.shape, array.dtype) if out is None else checked_out(array.shape, array.dtype, out)
    sent = np.ascontiguousarray(array).reshape(array.shape)
    received = target if target.flags.c_contiguous else np.empty(array.shape, array.dtype)
    if np.may_share_memory(sent, received):
        sent = sent.copy()
    return Operands(sent, received, "u8", target, target if out is None else out)
