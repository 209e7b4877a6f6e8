"""A person's own operators, for tensors and for DDP's gradients: :func:`all_reduce`, :class:`Combine` and its hook."""

# Annotations are not postponed, because DDP looks at the hook's.

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import GradBucket

from tributary import Operator
from tributary.torch.plugin import backend_of


def all_reduce(tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """Do as ``torch.distributed.all_reduce``, in place, also with a :class:`tributary.Operator`.

    The network combines with it, or the call fails; nothing goes over the host path. All ranks bring the same operator,
    and the first call with one waits until all have joined a job for it.

    Args:
        tensor: of the operator's elements. Those of one field are a tensor of its type; complex numbers are the fields
            ``re`` and ``im``. Where all fields are of one type, the tensor may be of that, and its last dimension has
            the fields. Any other element is a last dimension of bytes (``torch.uint8``).
        op: an operator; or one of PyTorch's.
        group: a group of the tributary backend; the default group if None.
        async_op: whether to return at once, with a work to wait for.

    """
    if not isinstance(op, Operator):
        return dist.all_reduce(tensor, op=op, group=group, async_op=async_op)
    work = backend_of(group).all_reduce_custom([tensor], op, async_op)
    if async_op:
        return work
    work.wait()
    return None


#: Makes the tensor that travels, and the function that makes gradients of the result.
Encode = Callable[[torch.Tensor], tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]]


class Combine:
    """What :func:`combine_hook` combines with: ``model.register_comm_hook(Combine(op), combine_hook)``.

    Args:
        op: makes one gradient of two ranks': "a + b", or "a if abs(a) > abs(b) else b".
        group: a group of the tributary backend with the ranks of the model's own; the default group if None.
        encode: makes of a bucket's flat gradients the tensor that travels, of the operator's elements, and a function
            that makes gradients of the result, as many as there were. The gradients themselves travel if None. An
            operator combines and does not divide: an average divides here. It may start collectives and wait for them.

    """

    def __init__(self, op: Operator, group: Any = None, encode: Encode | None = None) -> None:
        """Made by whoever registers the hook."""
        self.op, self.group, self.encode = op, group, encode


def combine_hook(state: Combine, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Combine a bucket of gradients in the network with an own operator."""
    buffer = bucket.buffer()
    travelling, decode = (buffer, None) if state.encode is None else state.encode(buffer)
    future = backend_of(state.group).all_reduce_custom([travelling], state.op, True).get_future()

    def landed(done: Any) -> Any:
        combined = done.value()[0]
        gradients = combined if decode is None else decode(combined)
        return gradients if gradients is buffer else buffer.copy_(gradients.reshape(buffer.shape))

    return future.then(landed)
