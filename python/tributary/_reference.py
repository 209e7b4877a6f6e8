"""Sums computed on one machine: their bits follow from the inputs and the tree, where a protocol promises that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tributary import _core
from tributary._arrays import Array, check_op, dtype_name
from tributary.errors import ConfigError

#: A rank, or a list of what a switch adds, in the order of its children.
Tree = int | list["Tree"]


def reference(protocol: str, arrays: Sequence[npt.ArrayLike], tree: Any, op: str) -> Array:
    """Compute the bits of a sum, as a protocol's own `reference` documents."""
    check_op(op)
    inputs = [np.asarray(array) for array in arrays]
    if not inputs:
        raise ConfigError("a sum of no ranks has no bits: give every rank's array")
    first = inputs[0]
    for rank, array in enumerate(inputs):
        if array.dtype != first.dtype or array.shape != first.shape:
            raise ConfigError(
                f"rank {rank} brings {array.dtype} of shape {array.shape}, rank 0 {first.dtype} of shape "
                f"{first.shape}: all ranks bring the same"
            )
    shape: Tree = [*range(len(inputs))] if tree is None else nested(tree)
    ranks = sorted(leaves(shape))
    if ranks != list(range(len(inputs))):
        raise ConfigError(f"the tree adds the ranks {ranks}, and there are arrays of {len(inputs)} ranks")
    word = np.dtype(f"u{first.dtype.itemsize}")
    vectors = [np.ascontiguousarray(array).view(word).astype(word.newbyteorder(">")).tobytes() for array in inputs]
    try:
        bits = _core.recompute(protocol, dtype_name(first), op, vectors, shape)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    result = np.frombuffer(bits, word.newbyteorder(">")).astype(word).view(first.dtype)
    return result.reshape(first.shape)


def nested(tree: Any) -> Tree:
    """The tree as nested lists, from any of its forms."""
    if isinstance(tree, Mapping):
        return from_status(tree)
    if isinstance(tree, list | tuple) and tree and all(isinstance(one, Mapping) for one in tree):
        shapes = [from_status(one) for one in tree]
        if any(shape != shapes[0] for shape in shapes):
            raise ConfigError(
                "the job's trees add in different orders: give the tree of the blocks that you compare, one at a time"
            )
        return shapes[0]
    if isinstance(tree, list | tuple):
        return [nested(child) for child in tree]
    if isinstance(tree, int):
        return tree
    raise ConfigError(f"{tree!r} is not a tree: it is a rank, a list of trees, or what `tributary status --json` shows")


def from_status(tree: Mapping[str, Any]) -> Tree:
    """A tree of `tributary status --json` as nested lists."""
    switches = {switch["node"]: switch["children"] for switch in tree["switches"]}

    def below(node: str, path: tuple[str, ...]) -> Tree:
        if node in path:
            raise ConfigError(f"the tree comes back to {node}")
        return [
            below(child["node"], (*path, node)) if child["node"] in switches else rank_of(child)
            for child in switches[node]
        ]

    return below(tree["root"], ())


def rank_of(child: Mapping[str, Any]) -> int:
    """The single rank of a child that is not a switch of the tree."""
    ranks = child["ranks"]
    if len(ranks) != 1:
        raise ConfigError(
            f"{child['node']} adds the ranks {ranks} in an order that only its own status shows: add its switches "
            "to the tree's"
        )
    return int(ranks[0])


def leaves(tree: Tree) -> list[int]:
    """The ranks of a tree."""
    return [tree] if isinstance(tree, int) else [rank for child in tree for rank in leaves(child)]
