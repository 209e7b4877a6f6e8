"""Tables of results as structured arrays and as frames of pandas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

#: One record for each row; fields have the columns' names.
Table: TypeAlias = npt.NDArray[np.void]

#: The core's columns: arrays, and lists of words.
Columns: TypeAlias = Mapping[str, "npt.NDArray[Any] | list[str]"]


def structured(columns: Columns) -> Table:
    """Put columns together as one structured array."""
    arrays = {name: _array(values) for name, values in columns.items()}
    rows = len(next(iter(arrays.values())))
    table = np.empty(rows, dtype=[(name, array.dtype) for name, array in arrays.items()])
    for name, array in arrays.items():
        table[name] = array
    return table


def _array(values: npt.NDArray[Any] | list[str]) -> npt.NDArray[Any]:
    # An empty list would otherwise become an array of numbers.
    return np.array(values, dtype=np.str_) if isinstance(values, list) else values


def frame(columns: Columns) -> pd.DataFrame:
    """Make a frame; numbers are not copied."""
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "frames need pandas: `pip install 'tributary-ina[pandas]'`; without it the tables are numpy arrays"
        ) from error
    return pandas.DataFrame(dict(columns), copy=False)
