"""What Flare promises of reproducible sums: their bits follow from the inputs and the tree alone.

>>> bits = tributary.flare.reference(arrays)  # one switch
>>> bits = tributary.flare.reference(arrays, [[0, 1], [2, 3]])  # two racks below another
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from tributary import _reference
from tributary._arrays import Array


def reference(arrays: Sequence[npt.ArrayLike], tree: Any = None, op: str = "sum") -> Array:
    """Compute on one machine what `all_reduce` gives every rank of a reproducible Flare job, to the bit.

    Args:
        arrays: each rank's input, by rank; of one type and shape.
        tree: which ranks each switch adds. One switch over all ranks in their order if None, and so with
            `reproducible=ranks`; else nested lists: [[0, 1], [2, 3]] is a switch over two, each of which adds two
            ranks. On a fabric also as `tributary status --json` shows a job's `trees`.
        op: the operator.

    Raises `ConfigError` if the arrays differ in type or shape, if the tree is not one over these ranks, or if trees add
    in different orders: then the bits of a block depend on the tree that it went over.
    """
    return _reference.reference("flare", arrays, tree, op)
