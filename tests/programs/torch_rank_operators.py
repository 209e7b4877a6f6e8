"""What one rank does with operators of its own in PyTorch, in a process of its own: functions for ``ranks``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tributary
import tributary.torch
from torch_groups import data, default_group, digest
from tributary import Operator

STEPS = 4
FARTHEST = "a if abs(a) > abs(b) else b"


def draw(rank: int, *shape: int) -> torch.Tensor:
    """A rank's floats."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(50 + rank))


def records(rank: int, elements: int) -> torch.Tensor:
    """A rank's values and where they are, as bytes."""
    made = np.zeros(elements, [("v", "f4"), ("i", "i4")])
    made["v"], made["i"] = draw(rank, elements).numpy(), rank
    return torch.from_numpy(made.view(np.uint8).reshape(elements, 8))


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor's elements."""
    return tensor.resolve_conj().contiguous().reshape(-1).view(torch.uint8)


def at_home(op: Operator, brought: list[torch.Tensor]) -> torch.Tensor:
    """The bytes that one module makes of all ranks' tensors, in one process."""
    result = op.reduce([bits(one).numpy().view(op.dtype) for one in brought])
    return torch.from_numpy(result.view(np.uint8).copy())


#: Operators, and a rank's tensor for each: a type of its own, complex numbers, a last dimension of fields, or of bytes.
TENSORS: list[tuple[str, Any]] = [
    ("saturating-i8", lambda rank: data(rank, torch.int8, 5000) * 30),
    ("log-sum-exp", lambda rank: draw(rank, 70, 30)),
    ("log-sum-exp", lambda rank: draw(rank, 30, 70).T),
    ("complex-product", lambda rank: torch.complex(draw(rank, 900), draw(rank + 9, 900))),
    ("complex-product", lambda rank: torch.complex(draw(rank, 900), draw(rank + 9, 900)).conj()),
    ("matrix-2x2", lambda rank: draw(rank, 400, 4)),
    ("maxloc", lambda rank: records(rank, 3001)),
    ("fp8-e4m3", lambda rank: draw(rank, 2000).to(torch.float8_e4m3fn)),
    ("xor", lambda rank: data(rank, torch.int64, 0)),
    ("xor", lambda rank: data(rank, torch.int64, 200_001)),
]


def tensors(rank: int, size: int, meet: str, protocol: str) -> str:
    """Every kind of tensor, against the module at home; the bits of the results."""
    seen = []
    with default_group(rank, size, meet, protocol=protocol):
        for name, make in TENSORS:
            op, every = Operator.from_file(name), [make(own) for own in range(size)]
            tensor = make(rank)
            work = tributary.torch.all_reduce(tensor, op=op, async_op=True)
            (same,) = work.get_future().wait()
            assert same is tensor
            assert torch.equal(bits(tensor), at_home(op, every)), name
            seen.append(bits(tensor))
        # Others go on beside them.
        ones = torch.ones(1000)
        tributary.torch.all_reduce(ones)
        assert (ones == size).all()
        if size > 1:
            stats = tributary.torch.stats()
            assert stats.network["all_reduce"].collectives == len(TENSORS) + 1
            assert stats.host_bytes == 0
    return digest(*seen)


def expression(rank: int, size: int, meet: str, protocol: str) -> None:
    """One expression, several times."""
    op = Operator.expression(FARTHEST, dtype="f32")
    with default_group(rank, size, meet, protocol=protocol):
        for length in (1, 1000, 100_000):
            every = torch.stack([draw(own, length) for own in range(size)])
            mine = every[rank].clone()
            tributary.torch.all_reduce(mine, op=op)
            assert torch.equal(mine, every.gather(0, every.abs().argmax(0, keepdim=True))[0])


def refused(rank: int, size: int, meet: str, protocol: str, words: str) -> None:
    """A protocol without such jobs says so, and goes on."""
    with default_group(rank, size, meet, protocol=protocol):
        with pytest.raises(tributary.UnsupportedError, match=words):
            tributary.torch.all_reduce(torch.ones(3), op=Operator.expression(FARTHEST, dtype="f32"))
        dist.barrier()


def different(rank: int, size: int, meet: str, protocol: str) -> None:
    """Ranks that bring two operators hear of it: who comes second at once, and the other in the timeout."""
    op = Operator.expression(["a + b", "a * b"][rank], dtype="f32")
    with default_group(rank, size, meet, protocol=protocol, timeout=4.0):
        with pytest.raises(tributary.TributaryError) as caught:
            tributary.torch.all_reduce(torch.ones(3), op=op)
        named = torch.tensor(["operators" in str(caught.value) and op.sha256[:8] in str(caught.value)]).int()
        dist.all_reduce(named)
        assert named.item() >= 1, caught.value
        # The group goes on.
        ones = torch.ones(3)
        dist.all_reduce(ones)
        assert (ones == size).all()


def unfit(rank: int, size: int, meet: str, protocol: str) -> None:
    """The sentence names both types."""
    op = Operator.from_file("maxloc")
    with default_group(rank, size, meet, protocol=protocol):
        with pytest.raises(tributary.ConfigError, match=r"torch.float32\[3, 2\], and maxloc is for v:f32,i:i32"):
            tributary.torch.all_reduce(torch.ones(3, 2), op=op)
        with pytest.raises(tributary.UnsupportedError, match="sparse"):
            tributary.torch.all_reduce(torch.eye(3).to_sparse(), op=op)
        dist.barrier()


def stepped(plane: nn.Linear, hook: Any, state: Any, rank: int) -> list[torch.Tensor]:
    """The gradients of some steps under a hook."""
    model = DistributedDataParallel(plane)
    model.register_comm_hook(state, hook)
    seen = []
    for step in range(STEPS):
        plane.zero_grad()
        model(draw(100 * step + rank, 16, 25)).square().sum().backward()
        assert plane.weight.grad is not None
        seen.append(plane.weight.grad.clone())
    return seen


def plane_of(seed: int) -> nn.Linear:
    """The same model on every rank."""
    torch.manual_seed(seed)
    return nn.Linear(25, 40, bias=False)


def training(rank: int, size: int, meet: str, protocol: str) -> str:
    """A sum that somebody wrote gives what the network's own average gives; another operator what it says."""
    with default_group(rank, size, meet, protocol=protocol):
        op = Operator.expression("a + b", dtype="f32")
        state = tributary.torch.Combine(op, encode=lambda gradients: (gradients / size, lambda mean: mean))
        mine = stepped(plane_of(3), tributary.torch.combine_hook, state, rank)
        right = stepped(plane_of(3), tributary.torch.all_reduce_hook, None, rank)
        for one, other in zip(mine, right, strict=True):
            torch.testing.assert_close(one, other)
        farthest = tributary.torch.Combine(Operator.expression(FARTHEST, dtype="f32"))
        combined = stepped(plane_of(3), tributary.torch.combine_hook, farthest, rank)
        for step, gradient in enumerate(combined):
            alone = []
            for own in range(size):
                plane = plane_of(3)
                plane(draw(100 * step + own, 16, 25)).square().sum().backward()
                assert plane.weight.grad is not None
                alone.append(plane.weight.grad)
            every = torch.stack(alone)
            torch.testing.assert_close(gradient, every.gather(0, every.abs().argmax(0, keepdim=True))[0])
        return digest(*mine, *combined)


def eight_bits(rank: int, size: int, meet: str, protocol: str) -> str:
    """Gradients travel as bytes; what comes back is as near as eight bits are."""
    with default_group(rank, size, meet, protocol=protocol):
        state = tributary.torch.Combine(
            Operator.from_file("fp8-e4m3"),
            encode=lambda gradients: ((gradients / size).to(torch.float8_e4m3fn), torch.Tensor.float),
        )
        mine = stepped(plane_of(5), tributary.torch.combine_hook, state, rank)
        right = stepped(plane_of(5), tributary.torch.all_reduce_hook, None, rank)
        for one, other in zip(mine, right, strict=True):
            assert (one - other).norm() < 0.1 * other.norm()
        return digest(*mine)
