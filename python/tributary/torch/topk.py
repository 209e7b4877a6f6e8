"""The largest of DDP's gradients only, as sparse tensors: :class:`TopK` and its hook."""

# Annotations are not postponed, because DDP looks at the hook's.

from math import ceil
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import GradBucket

from tributary.torch.sparse import are_sparse


class TopK:
    """What :func:`topk_hook` keeps: ``model.register_comm_hook(TopK(ratio=0.01), topk_hook)``.

    Of each bucket a rank sends the elements of the largest magnitude. What it has not sent it adds to the next step's
    gradients, unless `error_feedback` is off; then it is lost.

    Args:
        group: a group of the tributary backend whose protocol sums sparse tensors; the default group if None.
        ratio: the share of a bucket's elements that a rank sends, above 0 and up to 1.
        error_feedback: whether what was not sent comes later.

    """

    def __init__(self, group: Any = None, ratio: float = 0.01, error_feedback: bool = True) -> None:
        """Made by whoever registers the hook; one for each model."""
        if not 0 < ratio <= 1:
            raise ValueError(f"the ratio of elements that are sent is above 0 and up to 1, not {ratio}")
        self.group, self.ratio, self.error_feedback = group, ratio, error_feedback
        #: The elements that were not sent, by parameter: DDP distributes parameters to other buckets after its first
        #: step.
        self.left: dict[torch.Tensor, torch.Tensor] = {}

    def choose(self, bucket: GradBucket) -> torch.Tensor:
        """Take the bucket's largest elements, and remember the others."""
        buffer, parameters, gradients = bucket.buffer(), bucket.parameters(), bucket.gradients()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if parameter in self.left:
                gradient.add_(self.left[parameter])
        largest = buffer.abs().topk(ceil(self.ratio * buffer.numel()), sorted=False).indices.sort().values
        chosen = torch.sparse_coo_tensor(
            largest[None], buffer[largest], buffer.shape, is_coalesced=True, check_invariants=False
        )
        if self.error_feedback:
            buffer[largest] = 0
            self.left |= {one: left.clone() for one, left in zip(parameters, gradients, strict=True)}
        return chosen


def topk_hook(state: TopK, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average the largest gradients of a bucket in the network; those that no rank sends are zero."""
    buffer = bucket.buffer()
    # All elements of an embedding's gradient, which is sparse already.
    chosen = buffer if are_sparse([buffer]) else state.choose(bucket)
    process_group: Any = state.group or dist.group.WORLD
    opts = dist.AllreduceOptions()
    opts.reduceOp = dist.ReduceOp.AVG
    future: Any = process_group.allreduce([chosen], opts).get_future()

    def landed(done: Any) -> Any:
        average = done.value()[0]
        return average if average is buffer else buffer.copy_(average.to_dense())

    return future.then(landed)
