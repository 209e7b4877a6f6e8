"""What one rank does with sparse tensors in PyTorch, in a process of its own: functions for the ``ranks`` fixture."""

from __future__ import annotations

from functools import cache, reduce
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tributary
import tributary.torch
from torch_groups import default_group, digest
from torch_rank import FLOATS, INTEGERS

#: Dimensions that have indices, and those that each index stands for.
SHAPES: list[Any] = [((5000,), ()), ((70, 30), ()), ((400,), (16,)), ((9, 4), (2, 3))]
STEPS = 8
WORDS, WIDTH = 1000, 12


@cache
def brought(rank: int, dtype: torch.dtype, shape: tuple[int, ...], dense: tuple[int, ...], elements: int) -> Any:
    """A rank's sparse tensor of small integers: in no order, and some indices more than once."""
    draw = torch.Generator().manual_seed(1000 * rank + elements)
    indices = torch.stack([torch.randint(0, extent, (elements,), generator=draw) for extent in shape])
    values = torch.randint(0, 4, (elements, *dense), generator=draw).to(dtype)
    return torch.sparse_coo_tensor(indices, values, shape + dense, check_invariants=True)


def sums(rank: int, size: int, meet: str, protocol: str) -> list[str]:
    """All types and shapes, also where ranks bring nothing; the bits of the results."""
    seen, collectives = [], 0
    with default_group(rank, size, meet, protocol=protocol):
        # Gloo, which a group of one rank is left to, knows fewer types.
        for dtype in FLOATS + INTEGERS if size > 1 else [torch.float32, torch.int64]:
            for shape, dense in SHAPES:
                for elements in ([0] * size, [50] * size, [0, *[30] * (size - 1)]):
                    every = [brought(own, dtype, shape, dense, elements[own]) for own in range(size)]
                    for op in ("SUM", "AVG") if dtype.is_floating_point else ("SUM",):
                        tensor = every[rank].clone()
                        work = dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op), async_op=True)
                        work.wait()
                        union = reduce(torch.add, [one.double() for one in every]).coalesce()
                        exact = union.to_dense() / (size if op == "AVG" else 1)
                        torch.testing.assert_close(tensor.to_dense(), exact.to(dtype))
                        assert torch.equal(tensor.coalesce().indices(), union.indices()), "what cancels stays"
                        seen.append(digest(tensor.indices(), tensor.values()))
                        collectives += 1
        dist.barrier()
        stats = tributary.torch.stats()
        if size > 1:
            assert stats.network["all_reduce"].collectives == collectives
            assert stats.host_bytes == 0
        # Dense ones go on beside them.
        ones = torch.ones(1000)
        dist.all_reduce(ones)
        assert (ones == size).all()
    return seen


def refusals(rank: int, size: int, meet: str, protocol: str, options: str, op: str, words: str) -> None:
    """What is not a sum of sparse tensors is refused on every rank, and the group goes on."""
    with default_group(rank, size, meet, protocol=protocol, options=options):
        try:
            dist.all_reduce(torch.eye(3).to_sparse(), op=getattr(dist.ReduceOp, op))
        except tributary.UnsupportedError as error:
            assert words in str(error), error
        else:
            raise AssertionError("it was summed")
        dist.barrier()


class Bag(nn.Module):
    """Words, and what they say."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, sparse=sparse)
        self.says = nn.Linear(WIDTH, 1)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """One number for each line of words."""
        return torch.as_tensor(self.says(self.words(words).mean(1)))


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A rank's lines of words in one step, and what they should say."""
    draw = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(0, WORDS, (16, 5), generator=draw), torch.randn(16, 1, generator=draw)


def loss_of(model: nn.Module, rank: int, step: int) -> torch.Tensor:
    """The loss of one rank's batch."""
    words, says = batch(rank, step)
    return nn.functional.mse_loss(model(words), says)


def embeddings(rank: int, size: int, meet: str, protocol: str) -> str:
    """DDP with sparse gradients of an embedding, against one process with all ranks' data; the parameters' bits."""
    torch.manual_seed(3)
    alone = Bag(sparse=False)
    with default_group(rank, size, meet, protocol=protocol):
        own = Bag(sparse=True)
        own.load_state_dict(alone.state_dict())
        together = DistributedDataParallel(own)
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.5) for model in (alone, own)]
        for step in range(STEPS):
            for optimizer in optimizers:
                optimizer.zero_grad()
            torch.stack([loss_of(alone, other, step) for other in range(size)]).mean().backward()
            loss_of(together, rank, step).backward()
            assert own.words.weight.grad is not None
            assert own.words.weight.grad.is_sparse
            for optimizer in optimizers:
                optimizer.step()
        for right, mine in zip(alone.parameters(), own.parameters(), strict=True):
            torch.testing.assert_close(mine, right)
        assert not torch.equal(own.words.weight, Bag(sparse=False).words.weight)
        if size > 1:
            assert tributary.torch.stats().network["all_reduce"].collectives >= 2 * STEPS
        return digest(*own.parameters())


def topk(rank: int, size: int, meet: str, protocol: str) -> str:
    """DDP that sends the largest gradients only, which are the same in each step; the gradients' bits."""
    with default_group(rank, size, meet, protocol=protocol):
        every = [torch.randint(-50, 50, (40, 25), generator=torch.Generator().manual_seed(own)) for own in range(size)]
        slopes = every[rank].float()
        mean = torch.stack(every).float().mean(0)

        def delivered(hook: tributary.torch.TopK) -> torch.Tensor:
            plane = nn.Linear(25, 40, bias=False)
            model = DistributedDataParallel(plane)
            model.register_comm_hook(hook, tributary.torch.topk_hook)
            total = torch.zeros(40, 25)
            for _ in range(STEPS):
                plane.weight.grad = None
                # The gradient of the sum over unit vectors is what they are weighed with.
                (model(torch.eye(25)).T * slopes).sum().backward()
                assert plane.weight.grad is not None
                total += plane.weight.grad
            return total

        torch.testing.assert_close(delivered(tributary.torch.TopK(ratio=1.0)), STEPS * mean)
        hook = tributary.torch.TopK(ratio=0.1)
        total = delivered(hook)
        (left,) = hook.left.values()
        dist.all_reduce(left, op=dist.ReduceOp.AVG)
        torch.testing.assert_close(total + left.reshape(40, 25), STEPS * mean)
        # In turn each element is among the largest, except small ones.
        assert (total != 0).float().mean() > 0.5
        forgetful = tributary.torch.TopK(ratio=0.1, error_feedback=False)
        lost = delivered(forgetful)
        assert not forgetful.left
        assert (lost != 0).float().mean() <= 0.1 * size
        return digest(total, lost)
