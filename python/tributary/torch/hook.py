"""For programs that cannot change the backend: DDP's gradients go through the network, everything else as before."""

# Annotations are not postponed, because DDP looks at the hook's.

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import GradBucket


def all_reduce_hook(group: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of gradients in the network: ``model.register_comm_hook(group, all_reduce_hook)``.

    Args:
        group: a group of the tributary backend with the ranks of the model's own,
            ``dist.new_group(backend="tributary")``; the default group if None.
        bucket: what DDP brings.

    """
    process_group: Any = group or dist.group.WORLD
    opts = dist.AllreduceOptions()
    opts.reduceOp = dist.ReduceOp.AVG
    future: Any = process_group.allreduce([bucket.buffer()], opts).get_future()
    return future.then(_only)


def _only(future: Any) -> Any:
    return future.value()[0]
