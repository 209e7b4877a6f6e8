"""What one rank does with the rest of PyTorch's distributed package: functions for the ``ranks`` fixture.

Each compares what came out with the same computation on one process, which holds every rank's data.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import tributary.torch
from torch_groups import default_group, digest


def network() -> nn.Sequential:
    """A small model, the same on every rank."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def batch(rank: int, step: int = 0) -> torch.Tensor:
    """A rank's inputs of a step."""
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(100 * step + rank))


def loss_of(model: nn.Module, rank: int, step: int = 0) -> torch.Tensor:
    """A rank's loss in a step."""
    return model(batch(rank, step)).square().mean()


def trained_alone(size: int, steps: int) -> list[torch.Tensor]:
    """The parameters of one process that trains with all ranks' data."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        torch.stack([loss_of(model, rank, step) for rank in range(size)]).mean().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def train(model: nn.Module, rank: int, steps: int) -> None:
    """Train with this rank's data."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()


def assert_trained(parameters: list[torch.Tensor], size: int, steps: int) -> None:
    """The parameters are those of one process with all data, up to the order of additions."""
    for parameter, want in zip(parameters, trained_alone(size, steps), strict=True):
        torch.testing.assert_close(parameter.detach(), want)


def uneven(rank: int, size: int, meet: str) -> tuple[int, str]:
    """``Join``: each rank has one batch more than the one before it."""
    with default_group(rank, size, meet):
        model = DistributedDataParallel(network())
        steps = 0
        with Join([model]):
            for step in range(2 + rank):
                model.zero_grad()
                loss_of(model, rank, step).backward()
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter -= 0.1 * parameter.grad
                steps += 1
        return steps, digest(*model.parameters())


def accumulating(rank: int, size: int, meet: str) -> str:
    """``no_sync``: two batches without a sum, then one with."""
    with default_group(rank, size, meet):
        model = DistributedDataParallel(network())
        before = tributary.torch.stats().network
        with model.no_sync():
            loss_of(model, rank, 0).backward()
            loss_of(model, rank, 1).backward()
        assert tributary.torch.stats().network == before
        loss_of(model, rank, 2).backward()
        assert tributary.torch.stats().network != before
        alone = network()
        torch.stack([loss_of(alone, r, step) for r in range(size) for step in range(3)]).sum().div(size).backward()
        for mine, want in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, want.grad)
        return digest(*[parameter.grad for parameter in model.parameters() if parameter.grad is not None])


class Rechecked(nn.Module):
    """A layer used twice, and computed again in the backward pass: what DDP takes with a static graph only."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.shared = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Twice through the shared layer."""
        x = self.first(x)
        for _ in range(2):
            x = checkpoint(self.shared, x, use_reentrant=True)
        return x


def static_graph(rank: int, size: int, meet: str) -> str:
    """``static_graph=True``, without which DDP refuses this model."""
    with default_group(rank, size, meet):
        model = DistributedDataParallel(Rechecked(), static_graph=True)
        for step in range(3):
            model.zero_grad()
            loss_of(model, rank, step).backward()
        alone = Rechecked()
        torch.stack([loss_of(alone, r, 2) for r in range(size)]).mean().backward()
        for mine, want in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, want.grad)
        return digest(*[parameter.grad for parameter in model.parameters() if parameter.grad is not None])


def hybrid_sharded(rank: int, size: int, meet: str, names: tuple[str, str] = ("replicate", "shard")) -> dict[str, int]:
    """FSDP2 on a mesh of two by two: replicas in one direction, shards in the other; collectives by operation.

    PyTorch keeps the groups of a mesh for equal meshes later in the process, so each call needs names of its own.
    """
    with default_group(rank, size, meet):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=names)
        model = network()
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh)
        train(model, rank, 3)
        assert_trained([parameter.full_tensor() for parameter in model.parameters()], size, 3)
        counted: dict[str, int] = {}
        for name in names:
            for operation, count in tributary.torch.stats(mesh.get_group(name)).network.items():
                counted[operation] = counted.get(operation, 0) + count.collectives
        return counted


def sharded_tensors(rank: int, size: int, meet: str) -> None:
    """DTensor: partial sums that become replicas and shards, and a matrix product that makes some."""
    with default_group(rank, size, meet):
        mesh = init_device_mesh("cpu", (size,))
        torch.manual_seed(1)
        left, right = torch.randn(4 * size, 2 * size), torch.randn(2 * size, 3)
        product = distribute_tensor(left, mesh, [Shard(1)]) @ distribute_tensor(right, mesh, [Shard(0)])
        assert product.placements == (Partial(),)
        torch.testing.assert_close(product.redistribute(mesh, [Replicate()]).to_local(), left @ right)
        rows = product.redistribute(mesh, [Shard(0)]).to_local()
        torch.testing.assert_close(rows, (left @ right)[4 * rank : 4 * rank + 4])
        counted = tributary.torch.stats().network
        assert counted["all_reduce"].collectives == counted["reduce_scatter_single_coalesced"].collectives == 1


def tensor_parallel(rank: int, size: int, meet: str) -> None:
    """A layer cut by columns and one cut by rows, forth and back."""
    with default_group(rank, size, meet):
        mesh = init_device_mesh("cpu", (size,))
        model = parallelize_module(network(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        alone, x = network(), batch(0)
        torch.testing.assert_close(model(x), alone(x))
        model(x).square().mean().backward()
        alone(x).square().mean().backward()
        for mine, want in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(mine.grad.full_tensor(), want.grad)


def checkpointed(rank: int, size: int, meet: str, folder: str, how: str) -> str:
    """Save a sharded model and load it into another one."""
    with default_group(rank, size, meet):
        mesh = init_device_mesh("cpu", (size,))
        model, other = fully_shard(network(), mesh=mesh), fully_shard(network(), mesh=mesh)
        train(model, rank, 2)
        state = {"model": model.state_dict()}
        if how == "save":
            dcp.save(state, checkpoint_id=folder)
        else:
            # Training goes on meanwhile, in a group of its own, and what it changes is not saved.
            saving = dcp.async_save(state, checkpoint_id=folder, process_group=dist.new_group())
            train(model, rank, 1)
            saving.result()
        loaded = {"model": other.state_dict()}
        dcp.load(loaded, checkpoint_id=folder)
        other.load_state_dict(loaded["model"])
        parameters = [parameter.full_tensor() for parameter in other.parameters()]
        assert_trained(parameters, size, 2)
        return digest(*parameters)


def compiled(rank: int, size: int, meet: str, how: str) -> list[str]:
    """DDP whose model, or whose whole step, is compiled; what PyTorch warns of."""
    torch._dynamo.reset()
    with default_group(rank, size, meet), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = DistributedDataParallel(network())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(number: int) -> None:
            optimizer.zero_grad()
            loss_of(called, rank, number).backward()
            optimizer.step()

        # Inductor would call a C++ compiler; what Dynamo sees is the same.
        compiling: Callable[[Any], Any] = torch.compile(backend="aot_eager")
        called: nn.Module = compiling(model) if how == "model" else model
        stepping = compiling(step) if how == "step" else step
        for number in range(3):
            stepping(number)
        assert_trained(list(model.parameters()), size, 3)
    return [str(warning.message) for warning in caught]


class Squares(Dataset[torch.Tensor]):
    """Numbers, each made by the process that loads it."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(float(index * index))


def loading(rank: int, size: int, meet: str) -> float:
    """Two epochs of a loader whose workers are forks of a rank with a group."""
    with default_group(rank, size, meet):
        data = Squares()
        total = torch.zeros(())
        for _ in range(2):
            # Its workers begin and end in every epoch.
            sampler: DistributedSampler[torch.Tensor] = DistributedSampler(data)
            for numbers in DataLoader(data, 4, sampler=sampler, num_workers=2, multiprocessing_context="fork"):
                subtotal = numbers.sum()
                dist.all_reduce(subtotal)
                total += subtotal
        return total.item()
