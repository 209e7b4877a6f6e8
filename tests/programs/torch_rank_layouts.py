"""Every operation on tensors of every memory layout and type, against a model that knows neither layouts nor a network.

A tensor is a view of a base whose other elements are poison; after an operation the poison must be as it was.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from torch_groups import default_group

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]
OTHERS = [torch.bool, torch.uint16, torch.uint32, torch.uint64, torch.complex64, torch.complex128]
#: What the operations that only move data take: all types that PyTorch has.
MOVED = FLOATS + INTEGERS + FLOAT8 + OTHERS


def poison(dtype: torch.dtype, count: int) -> torch.Tensor:
    """As many elements of bits that nothing else has."""
    return torch.full((count * dtype.itemsize,), 1 if dtype == torch.bool else 77, dtype=torch.uint8).view(dtype)


def noise(seed: str, dtype: torch.dtype, count: int) -> torch.Tensor:
    """As many elements of random bits, the same on every rank that knows the seed."""
    draw = random.Random(seed)
    top = 1 if dtype == torch.bool else 255
    raw = torch.tensor([draw.randint(0, top) for _ in range(count * dtype.itemsize)], dtype=torch.uint8)
    return raw.view(dtype)


def bits(tensor: torch.Tensor) -> list[int]:
    """The bits of a tensor's elements in C order."""
    flat = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor).reshape(-1)
    listed: list[int] = flat.view(torch.uint8).tolist()
    return listed


LAYOUTS: dict[str, Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]] = {
    "flat": lambda base, shape: base[: _count(shape)].view(shape),
    "offset": lambda base, shape: base[5 : 5 + _count(shape)].view(shape),
    "column": lambda base, shape: base[: 3 * _count(shape)].view(*shape, 3)[..., 1],
    "rows": lambda base, shape: base[: 2 * _count(shape)].view(2 * shape[0], *shape[1:])[::2],
    "transposed": lambda base, shape: base[: _count(shape)].view(shape[::-1]).permute(*range(len(shape))[::-1]),
}


def _count(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())


@dataclass
class Made:
    """A view, and the base that it is in."""

    view: torch.Tensor
    base: torch.Tensor

    @staticmethod
    def of(draw: random.Random, values: torch.Tensor, shape: tuple[int, ...]) -> Made:
        """A tensor of these values in a layout that is drawn."""
        base = poison(values.dtype, 3 * values.numel() + 8)
        view = LAYOUTS[draw.choice(list(LAYOUTS))](base, shape)
        view.copy_(values.view(shape))
        return Made(view, base)

    def check(self, want: torch.Tensor, what: str) -> None:
        """The view has these elements, and everything beside it is poison."""
        assert bits(self.view) == bits(want), f"{what}: other elements, {self.view.shape} by {self.view.stride()}"
        self.view.copy_(poison(self.base.dtype, self.view.numel()).view(self.view.shape))
        assert bits(self.base) == bits(poison(self.base.dtype, self.base.numel())), f"{what}: beside the tensor"


class Trial:
    """One operation: the tensors of all ranks, made from a seed."""

    def __init__(self, rank: int, size: int, seed: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        self.rank, self.size, self.seed, self.dtype, self.shape = rank, size, seed, dtype, shape
        #: Layouts differ between ranks; values and shapes are known to all.
        self._layouts = random.Random(f"{seed} layouts of {rank}")
        self.root = random.Random(f"{seed} root").randrange(size)

    def values(self, rank: int, index: int = 0, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        """The elements of a rank's tensor of this index."""
        count = _count(self.shape if shape is None else shape)
        return noise(f"{self.seed} {rank} {index}", self.dtype, count)

    def mine(self, index: int = 0, shape: tuple[int, ...] | None = None) -> Made:
        """This rank's tensor of this index."""
        shape = self.shape if shape is None else shape
        return Made.of(self._layouts, self.values(self.rank, index, shape), shape)

    def empty(self, shape: tuple[int, ...] | None = None) -> Made:
        """A tensor for a result, with other elements in it."""
        return self.mine(-1, shape)

    def shaped(self, rank: int, index: int = 0, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        """As :meth:`values`, in the trial's shape."""
        return self.values(rank, index, shape).view(self.shape if shape is None else shape)


def all_gather(t: Trial) -> None:
    """Every rank's tensor, in a list."""
    source, outs = t.mine(), [t.empty() for _ in range(t.size)]
    dist.all_gather([out.view for out in outs], source.view)
    for rank, out in enumerate(outs):
        out.check(t.shaped(rank), "all_gather")
    source.check(t.shaped(t.rank), "the input of all_gather")


def all_gather_single(t: Trial) -> None:
    """Every rank's tensor, in one."""
    source, out = t.mine(), t.empty((t.size * t.shape[0], *t.shape[1:]))
    dist.all_gather_single(out.view, source.view)
    out.check(torch.cat([t.shaped(rank) for rank in range(t.size)]), "all_gather_single")


def gather(t: Trial) -> None:
    """Every rank's tensor, at the root."""
    source, outs = t.mine(), [t.empty() for _ in range(t.size)] if t.rank == t.root else []
    dist.gather(source.view, [out.view for out in outs] or None, t.root)
    for rank, out in enumerate(outs):
        out.check(t.shaped(rank), "gather")
    source.check(t.shaped(t.rank), "the input of gather")


def scatter(t: Trial) -> None:
    """One of the root's tensors for each rank."""
    out, sources = t.empty(), [t.mine(i) for i in range(t.size)] if t.rank == t.root else []
    dist.scatter(out.view, [source.view for source in sources] or None, t.root)
    out.check(t.shaped(t.root, t.rank), "scatter")
    for index, source in enumerate(sources):
        source.check(t.shaped(t.root, index), "the input of scatter")


def all_to_all(t: Trial) -> None:
    """A tensor of its own size from every rank for every rank."""

    def shape(source: int, target: int) -> tuple[int, ...]:
        return (source + 2 * target + t.shape[0] - 1, *t.shape[1:])

    sources = [t.mine(i, shape(t.rank, i)) for i in range(t.size)]
    outs = [t.empty(shape(i, t.rank)) for i in range(t.size)]
    dist.all_to_all([out.view for out in outs], [source.view for source in sources])
    for rank, out in enumerate(outs):
        out.check(t.shaped(rank, t.rank, shape(rank, t.rank)), "all_to_all")


def all_to_all_single(t: Trial) -> None:
    """Slices of every rank's tensor: as many rows as the two ranks' numbers."""
    rest = t.shape[1:]

    def rows(rank: int) -> tuple[int, ...]:
        return (sum(rank + i for i in range(t.size)), *rest)

    splits = [t.rank + i for i in range(t.size)]
    source, out = t.mine(0, rows(t.rank)), t.empty(rows(t.rank))
    dist.all_to_all_single(out.view, source.view, splits, splits)
    slices = [t.shaped(i, 0, rows(i)).split([i + j for j in range(t.size)])[t.rank] for i in range(t.size)]
    out.check(torch.cat(slices), "all_to_all_single")


def all_to_all_single_even(t: Trial) -> None:
    """Slices of equal sizes."""
    shape = (t.size * t.shape[0], *t.shape[1:])
    source, out = t.mine(0, shape), t.empty(shape)
    dist.all_to_all_single(out.view, source.view)
    slices = [t.shaped(i, 0, shape).split(t.shape[0])[t.rank] for i in range(t.size)]
    out.check(torch.cat(slices), "all_to_all_single")


def send_and_receive(t: Trial) -> None:
    """From each rank to the next one; not to itself, which Gloo refuses."""
    if t.size == 1:
        return
    source, out = t.mine(), t.empty()
    sending = dist.isend(source.view, (t.rank + 1) % t.size)
    before = (t.rank - 1) % t.size
    if t.root:
        dist.recv(out.view, before)
    else:
        assert dist.recv(out.view) == before
    assert sending is not None
    sending.wait()
    out.check(t.shaped(before), "recv")


def broadcast(t: Trial) -> None:
    """The root's tensor on every rank."""
    made = t.mine()
    dist.broadcast(made.view, t.root)
    made.check(t.shaped(t.root), "broadcast")


MOVES = [
    all_gather,
    all_gather_single,
    gather,
    scatter,
    all_to_all,
    all_to_all_single,
    all_to_all_single_even,
    send_and_receive,
    broadcast,
]


class Sums(Trial):
    """A trial whose values have exact sums in every type."""

    def values(self, rank: int, index: int = 0, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        """Small integers."""
        draw = random.Random(f"{self.seed} {rank} {index}")
        count = _count(self.shape if shape is None else shape)
        return torch.tensor([draw.randint(0, 5) for _ in range(count)]).to(self.dtype)

    def total(self, op: str, index: int = 0, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        """The model of a reduction."""
        all_ranks = torch.stack([self.shaped(rank, index, shape) for rank in range(self.size)])
        if self.dtype == torch.bool:
            return all_ranks.all(0) if op in ("MIN", "PRODUCT") else all_ranks.any(0)
        exact = all_ranks.double()
        made = {"SUM": exact.sum(0), "MAX": exact.amax(0), "MIN": exact.amin(0), "PRODUCT": exact.prod(0)}[op]
        return made.to(self.dtype)


def all_reduce(t: Sums, op: str) -> None:
    """A reduction for all."""
    made = t.mine()
    dist.all_reduce(made.view, op=getattr(dist.ReduceOp, op))
    made.check(t.total(op), f"all_reduce of {op}")


def reduce(t: Sums, op: str) -> None:
    """A reduction for the root; the others' tensors stay as they are."""
    made = t.mine()
    dist.reduce(made.view, t.root, op=getattr(dist.ReduceOp, op))
    made.check(t.total(op) if t.rank == t.root else t.shaped(t.rank), f"reduce of {op}")


def reduce_scatter(t: Sums, op: str) -> None:
    """A reduction of which each rank gets one tensor."""
    sources, out = [t.mine(i) for i in range(t.size)], t.empty()
    dist.reduce_scatter(out.view, [source.view for source in sources], op=getattr(dist.ReduceOp, op))
    out.check(t.total(op, t.rank), f"reduce_scatter of {op}")
    for index, source in enumerate(sources):
        source.check(t.shaped(t.rank, index), "the input of reduce_scatter")


def reduce_scatter_single(t: Sums, op: str) -> None:
    """A reduction of which each rank gets a slice."""
    whole = (t.size * t.shape[0], *t.shape[1:])
    source, out = t.mine(0, whole), t.empty()
    dist.reduce_scatter_single(out.view, source.view, op=getattr(dist.ReduceOp, op))
    out.check(t.total(op, 0, whole).split(t.shape[0])[t.rank], f"reduce_scatter_single of {op}")
    source.check(t.shaped(t.rank, 0, whole), "the input of reduce_scatter_single")


REDUCTIONS: list[Callable[[Sums, str], None]] = [all_reduce, reduce, reduce_scatter, reduce_scatter_single]


def _shape(draw: random.Random) -> tuple[int, ...]:
    return tuple(draw.randint(1, 6) for _ in range(draw.randint(1, 3)))


def moved(rank: int, size: int, meet: str, seed: int) -> None:
    """Each operation that moves data, of each type, in layouts and shapes that are drawn."""
    draw = random.Random(seed)
    with default_group(rank, size, meet):
        for operation in MOVES:
            for dtype in MOVED:
                shape = _shape(draw)
                operation(Trial(rank, size, f"{seed} {operation.__name__} {dtype}", dtype, shape))
        large = Trial(rank, size, f"{seed} large", torch.float8_e4m3fn, (81, 51))
        all_gather_single(large)


def reduced(rank: int, size: int, meet: str, seed: int, **options: Any) -> None:
    """Each reduction of each type that has it."""
    draw = random.Random(seed)
    with default_group(rank, size, meet, **options):
        for operation in REDUCTIONS:
            for dtype in [*FLOATS, *INTEGERS, torch.bool]:
                for op in ("SUM", "MAX", "MIN", "PRODUCT"):
                    shape = _shape(draw)
                    operation(Sums(rank, size, f"{seed} {operation.__name__} {op} {dtype}", dtype, shape), op)


def reduced_on_the_host_path(rank: int, size: int, meet: str, seed: int) -> None:
    """The same in fixed point, which leaves all but a few to the host path."""
    reduced(rank, size, meet, seed, options="numbers=fixed")
