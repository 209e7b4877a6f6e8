"""What one rank does with callbacks that start collectives: functions for the ``ranks`` fixture."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

from torch_groups import default_group, digest

#: Every tensor has as many elements, so that ranks that disagree on the order get a wrong sum and no error.
ELEMENTS = 1000


def brought(rank: int, label: int) -> torch.Tensor:
    """What a rank brings to the collective with a label."""
    return torch.full((ELEMENTS,), float(10 * label + rank))


def summed(size: int, label: int) -> float:
    """Every element of the sum of what all bring to the collective with a label."""
    return float(sum(10 * label + rank for rank in range(size)))


def start(rank: int, label: int, dtype: torch.dtype = torch.float32, group: Any = None) -> Any:
    """Start the collective with a label; its future."""
    work = dist.all_reduce(brought(rank, label).to(dtype), async_op=True, group=group)
    assert work is not None
    return work.get_future()


def nested(rank: int, size: int, meet: str) -> list[list[float]]:
    """Each of ten collectives has a callback that waits for a second, and one on that which waits for a third."""
    # In fixed point float64 takes the host path.
    with default_group(rank, size, meet, options="numbers=fixed"):

        def second(future: Any, label: int) -> list[float]:
            return [future.value()[0][0].item(), start(rank, label + 1).wait()[0][0].item()]

        def third(future: Any, label: int) -> list[float]:
            # On the host path, and with a callback of its own for whose result this one waits.
            inner = start(rank, label + 2, torch.float64).then(lambda inner: inner.value()[0][0].item())
            return [*future.value(), inner.wait()]

        chains = []
        for label in range(100, 200, 10):
            future = start(rank, label)
            if (label // 10 + rank) % 2:
                # Here the collective has ended before anything hangs on it, elsewhere it has not.
                future.wait()
                time.sleep(0.01)
            chain = future.then(lambda future, label=label: second(future, label))
            chains.append(chain.then(lambda future, label=label: third(future, label)))
            dist.all_reduce(other := brought(rank, label + 3))
            assert other[0].item() == summed(size, label + 3)
        return [chain.wait() for chain in chains]


def among_groups(rank: int, size: int, meet: str) -> list[float]:
    """Callbacks of one group start collectives of another, while that one's own callbacks do too."""
    with default_group(rank, size, meet):
        other = dist.new_group()
        seen = []
        for label in range(100, 200, 10):
            here = start(rank, label).then(
                lambda _, label=label: start(rank, label + 1, group=other).wait()[0][0].item()
            )
            there = start(rank, label + 2, group=other).then(
                lambda _, label=label: start(rank, label + 3, group=other).wait()[0][0].item()
            )
            seen += [here, there]
        return [future.wait() for future in seen]


def abandoned(rank: int, size: int, meet: str) -> tuple[str, str]:
    """The last rank has no callback, so that the others' callbacks wait for it in vain; what they hear."""
    with default_group(rank, size, meet, timeout=2.0):
        # The first callback's collectives, so that ranks have met for them.
        start(rank, 1).then(lambda _: start(rank, 2).wait()).wait()
        future = start(rank, 3)
        if rank == size - 1:
            future.wait()
            time.sleep(4.0)
            return "", ""
        try:
            future.then(lambda _: start(rank, 4).wait()).wait()
        except RuntimeError as error:
            return type(error).__name__, str(error)
    return "nothing", "went wrong"


def refused(rank: int, size: int, meet: str) -> str:
    """On rank 0 a callback whose place among others PyTorch alone decides starts a collective."""
    with default_group(rank, size, meet):
        store = dist.distributed_c10d._get_default_store()
        if rank > 0:
            store.wait(["attached"])
        both = torch.futures.collect_all([start(rank, 1), start(rank, 2)])
        if rank > 0:
            both.wait()
            return ""
        future = both.then(lambda _: start(rank, 3))
        store.set("attached", "")
        try:
            future.wait()
        except RuntimeError as error:
            return str(error)
    return "nothing went wrong"


def failing(rank: int, size: int, meet: str) -> list[str]:
    """A callback that raises: what hangs on it hears, and later callbacks run."""
    with default_group(rank, size, meet):

        def fail(future: Any) -> None:
            raise LookupError("no such luck")

        failed = start(rank, 1).then(fail)
        after = failed.then(lambda future: future.value())
        start(rank, 2).add_done_callback(fail)
        sentences = []
        for future in (failed, after):
            try:
                future.wait()
            except LookupError as error:
                sentences.append(str(error))
        assert start(rank, 3).then(lambda future: future.value()[0][0].item()).wait() == summed(size, 3)
        return sentences


def hooked(rank: int, size: int, meet: str, hook: str) -> tuple[list[str], float]:
    """Train with one of DDP's communication hooks that start collectives; the parameters' bits, and the last loss."""
    with default_group(rank, size, meet):
        torch.manual_seed(1)
        layers = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
        model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.005)
        averager = PeriodicModelAverager(period=1, warmup_steps=2)
        state: Any
        if hook == "post_local_sgd":
            state = post_localSGD_hook.PostLocalSGDState(None, dist.new_group([rank]), start_localSGD_iter=4)
            model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
        else:
            _mend_orthogonalize()
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
            model.register_comm_hook(state, getattr(powerSGD_hook, f"{hook}_hook"))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        seen = []
        draw = torch.Generator().manual_seed(rank)
        x = torch.randn(64, 32, generator=draw)
        for _ in range(12):
            optimizer.zero_grad()
            loss = (model(x) - x[:, :16]).square().mean()
            loss.backward()
            optimizer.step()
            if hook == "post_local_sgd":
                averager.average_parameters(model.parameters())
            seen.append(digest(*model.parameters()))
        return seen, loss.item()


def _mend_orthogonalize() -> None:
    """PyTorch's batched hook hands one matrix to a function that takes a stack of them, and fails on any backend."""
    original = powerSGD_hook._orthogonalize

    def orthogonalize(matrices: torch.Tensor, epsilon: float = 0) -> None:
        original(matrices if matrices.dim() == 3 else matrices.unsqueeze(0), epsilon)

    powerSGD_hook._orthogonalize = orthogonalize
