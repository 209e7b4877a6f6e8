"""What one rank does with gradients as codes: functions for the ``ranks`` fixture."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import tributary.torch
from torch_groups import default_group, digest
from tributary.torch import Compress, Options, compress_hook, compress_reduce_scatter
from tributary.torch.plugin import backend_of


def _model(rank: int, bits: int = 8, **options: Any) -> tuple[nn.Module, Compress, torch.Generator]:
    """A model of several buckets, which are other ones from the second step on."""
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
    model = DistributedDataParallel(layers, bucket_cap_mb=0.005)
    compress = Compress(model, bits=bits, **options)
    model.register_comm_hook(compress, compress_hook)
    return model, compress, torch.Generator().manual_seed(rank)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, draw: torch.Generator) -> str:
    optimizer.zero_grad()
    model(torch.randn(8, 32, generator=draw)).square().mean().backward()
    optimizer.step()
    return digest(*model.parameters())


def trains(rank: int, size: int, meet: str, protocol: str, bits: int, codes: str) -> list[str]:
    """Train with codes; the parameters' bits after every step."""
    with default_group(rank, size, meet, protocol=protocol, fallback="error"):
        model, compress, draw = _model(rank, bits)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        seen = [_step(model, optimizer, draw) for _ in range(6)]
        gradients = 4 * sum(parameter.numel() for parameter in model.parameters())
        stats = tributary.torch.stats(compress.group)
        assert stats.codes["all_reduce", codes].bytes == 6 * gradients
        assert stats.codes["all_reduce", codes].bytes == stats.network["all_reduce"].bytes
        assert (
            str(stats)
            == f"in network 100.0% of {6 * gradients / 1024:.1f} KiB, {6 * gradients / 1024:.1f} KiB of it as {codes}"
        )
        assert not tributary.torch.stats().codes
        assert any(lost.any() for lost in compress.state_dict().values())
    return seen


def resumes(rank: int, size: int, meet: str, folder: str) -> tuple[str, str, str]:
    """Train six steps at once; and three after a checkpoint of three, with and without what the codes had lost."""
    checkpoint = os.path.join(folder, f"{rank}.pt")
    with default_group(rank, size, meet):
        model, compress, draw = _model(rank)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(6):
            if step == 3:
                state = {"model": model.state_dict(), "compress": compress.state_dict(), "draw": draw.get_state()}
                torch.save(state, checkpoint)
            whole = _step(model, optimizer, draw)
        ends = []
        for feeds_back in (True, False):
            model, compress, draw = _model(rank)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            # DDP's buckets of the steps from the second on are other ones than those of the first.
            _step(model, optimizer, draw)
            state = torch.load(checkpoint)
            model.load_state_dict(state["model"])
            compress.load_state_dict(state["compress"] if feeds_back else {})
            draw.set_state(state["draw"])
            for _ in range(3):
                end = _step(model, optimizer, draw)
            ends.append(end)
    return whole, ends[0], ends[1]


def feeds_back(rank: int, size: int, meet: str, bits: int, options: str) -> tuple[float, float]:
    """Average the same gradients 200 times; how far the averages' mean is from the exact one, with and without."""
    with default_group(rank, size, meet):
        # With exact sums of codes: a rank knows what its own codes lose, and not what a sum loses on its way down.
        codes = dist.new_group(backend="tributary", pg_options=Options(options=options))
        errors = []
        for error_feedback in (True, False):
            torch.manual_seed(1)
            layer = nn.Linear(40, 8, bias=False)
            model = DistributedDataParallel(layer)
            model.register_comm_hook(Compress(model, bits, codes, error_feedback), compress_hook)
            inputs = torch.randn(size, 40)
            total = torch.zeros(8, 40)
            for _ in range(200):
                model.zero_grad()
                model(inputs[rank]).sum().backward()
                assert layer.weight.grad is not None
                total += layer.weight.grad
            # The gradient of the sum by each row of weights is the input.
            errors.append((total / 200 - inputs.mean(0)).abs().max().item())
    return errors[0], errors[1]


def refuses(rank: int, size: int, meet: str) -> list[str]:
    """What is wrong with these; and a group that was given, which two models may share."""
    with default_group(rank, size, meet):
        model = nn.Linear(3, 2)
        refusals = []
        for bits, group in ((7, None), (8, dist.group.WORLD)):
            with pytest.raises(ValueError, match=" ") as refused:
                Compress(model, bits, group)
            refusals.append(str(refused.value))
        codes = dist.new_group(backend="tributary", pg_options=Options(options="numbers=int8,down=16"))
        compress = Compress(model, group=codes)
        assert [(name, lost.shape) for name, lost in compress.state_dict().items()] == [
            ("weight", (2, 3)),
            ("bias", (2,)),
        ]
        for state in ({"weight": torch.zeros(3)}, {"other": torch.zeros(3)}):
            with pytest.raises(ValueError, match=" ") as refused:
                compress.load_state_dict(state)
            refusals.append(str(refused.value))
        total = torch.ones(5)
        dist.all_reduce(total, group=codes)
        assert torch.equal(total, torch.full((5,), float(size)))
        whole = torch.ones(3)
        dist.broadcast(whole, 0, group=codes)
        assert list(tributary.torch.stats(codes).codes) == [("all_reduce", "int8")]
    return refusals


def shares_memory(rank: int, size: int, meet: str) -> None:
    """A group of ranks that share memory loses nothing, and says so."""
    with default_group(rank, size, meet, local="on"):
        buffer, loss = torch.full((10,), 0.3 + rank), torch.zeros(10)
        backend = backend_of()
        backend.all_reduce_with_loss(buffer, loss).wait()
        assert not loss.any()
        assert not tributary.torch.stats().codes


def shards(rank: int, size: int, meet: str, protocol: str, bits: int, codes: str) -> tuple[float, float]:
    """Train with FSDP2, exactly and with codes; the losses at the end."""
    with default_group(rank, size, meet, protocol=protocol, fallback="error"):
        ends = []
        for compressed in (False, True):
            torch.manual_seed(1)
            model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
            with pytest.raises(ValueError, match="no module of the model is sharded: call"):
                compress_reduce_scatter(model, bits)
            mesh = init_device_mesh("cpu", (size,))
            fully_shard(model[0], mesh=mesh)
            fully_shard(model, mesh=mesh)
            group = compress_reduce_scatter(model, bits) if compressed else None
            optimizer, draw = torch.optim.AdamW(model.parameters(), lr=0.01), torch.Generator().manual_seed(rank)
            truth = torch.randn(32, 4, generator=torch.Generator().manual_seed(2))
            for _ in range(30):
                optimizer.zero_grad()
                x = torch.randn(16, 32, generator=draw)
                loss = nn.functional.mse_loss(model(x), (x @ truth).tanh())
                loss.backward()
                optimizer.step()
            if group is not None:
                stats = tributary.torch.stats(group)
                assert {kind for _, kind in stats.codes} == {codes}
                assert sum(entry.bytes for entry in stats.codes.values()) == stats.network_bytes
            total = loss.detach()
            dist.all_reduce(total)
            ends.append(total.item() / size)
    return ends[0], ends[1]


def spans_hosts(rank: int, size: int, meet: str, bits: int, options: str) -> tuple[float, float, list[str], bool]:
    """Average the same gradients on hosts with several ranks; the errors as above, bits, and who has packets."""
    with default_group(rank, size, meet, local="on"):
        codes = dist.new_group(backend="tributary", pg_options=Options(options=options))
        errors, seen = [], []
        for error_feedback in (True, False):
            torch.manual_seed(1)
            layer = nn.Linear(40, 8, bias=False)
            model = DistributedDataParallel(layer)
            model.register_comm_hook(Compress(model, bits, codes, error_feedback), compress_hook)
            inputs, total = torch.randn(size, 40), torch.zeros(8, 40)
            for _ in range(100):
                model.zero_grad()
                model(inputs[rank]).sum().backward()
                assert layer.weight.grad is not None
                total += layer.weight.grad
            errors.append((total / 100 - inputs.mean(0)).abs().max().item())
            seen.append(digest(total))
        assert tributary.torch.stats(codes).codes
        return errors[0], errors[1], seen, tributary.torch.stats(codes).packets is not None
