"""Gradients as codes of a few bits, summed in the network: :class:`Compress` and its hook for DDP, and FSDP2's."""

# Annotations are not postponed, because DDP looks at the hook's.

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import GradBucket

from tributary.torch.options import CODES, Options
from tributary.torch.plugin import backend_of, options_here

#: The most ranks whose sums of codes of 8 bits come down in 8 bits: ``docs/numerics.md`` has the errors.
MOST_NARROW = 8


class Compress:
    """What :func:`compress_hook` keeps: ``model.register_comm_hook(Compress(model, bits=8), compress_hook)``.

    A rank adds what the codes have lost of its gradients to those of its next step, unless `error_feedback` is off;
    then it is lost. Each rank has lost something else, so each saves its own :meth:`state_dict` with its checkpoint.

    Args:
        model: the model whose gradients come; its parameters' names are those of the state.
        bits: of the codes: 8, or 4 (``docs/protocols/thc.md``).
        group: a group of the tributary backend with the ranks of the model's own, whose options sum codes of these bits
            (``Options(options="numbers=int8")`` or ``thc4``). If None, all ranks make such a group, here and together;
            among more than 8, sums come down in 16 bits, as their steps in 8 bits are too wide then.
        error_feedback: whether what was lost comes later.

    """

    def __init__(self, model: nn.Module, bits: int = 8, group: Any = None, error_feedback: bool = True) -> None:
        """Made by whoever registers the hook; one for each model."""
        self.bits, self.error_feedback = bits, error_feedback
        self.group = _group_of(bits, group)
        self._names = {parameter: name for name, parameter in model.named_parameters() if parameter.requires_grad}
        #: What the codes have lost, by parameter: DDP distributes parameters to other buckets after its first step.
        self._lost: dict[torch.Tensor, torch.Tensor] = {}
        #: The memory of the buckets' losses, by the buckets' numbers, and the parameters whose losses are in it.
        self._memory: dict[int, tuple[list[torch.Tensor], torch.Tensor]] = {}

    def bring(self, bucket: GradBucket) -> torch.Tensor | None:
        """Add what was lost to the bucket's gradients; returns memory for what is lost now, all zero."""
        if not self.error_feedback:
            return None
        parameters, gradients = bucket.parameters(), bucket.gradients()
        # A host's first rank knows what its host's average has lost, and is one of several that are averaged again.
        ranks = backend_of(self.group).ranks_of_a_sum
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if parameter in self._lost:
                gradient.add_(self._lost[parameter].to(gradient.device), alpha=ranks)
        loss = self._memory_of(bucket.index(), parameters, bucket.buffer())
        start = bucket.buffer().storage_offset()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            at = gradient.storage_offset() - start
            self._lost[parameter] = loss.as_strided(gradient.shape, gradient.stride(), at)
        return loss

    def _memory_of(self, index: int, parameters: list[torch.Tensor], buffer: torch.Tensor) -> torch.Tensor:
        before, memory = self._memory.get(index, ([], buffer))
        # Other parameters' losses may still be in the memory of another step's bucket.
        if [id(parameter) for parameter in before] != [id(parameter) for parameter in parameters]:
            memory = torch.empty(buffer.shape, dtype=buffer.dtype)
            self._memory[index] = list(parameters), memory
        return memory.zero_()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What this rank's codes have lost, by the names of parameters; zeros before the first step."""
        return {
            name: self._lost.get(parameter, torch.zeros_like(parameter, device="cpu", requires_grad=False))
            for parameter, name in self._names.items()
        }

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Go on with what :meth:`state_dict` had; a parameter that is not in it has lost nothing."""
        parameters = {name: parameter for parameter, name in self._names.items()}
        for name, lost in state.items():
            if name not in parameters:
                raise ValueError(f"the model has no trained parameter {name}: this is the state of another model")
            if lost.shape != parameters[name].shape:
                raise ValueError(
                    f"the parameter {name} has the shape {list(parameters[name].shape)}, and its state "
                    f"{list(lost.shape)}: this is the state of another model"
                )
        self._memory.clear()
        self._lost = {parameters[name]: lost.detach().to("cpu", copy=True) for name, lost in state.items()}


def _group_of(bits: int, group: Any) -> Any:
    """The group that sums codes of these bits: the one that was given, or one that all ranks make here."""
    if bits not in CODES:
        raise ValueError(f"gradients have codes of {' or '.join(map(str, CODES))} bits, not {bits}")
    codes = CODES[bits]
    if group is None:
        options = with_codes(options_here(), codes, dist.get_world_size())
        group = dist.new_group(backend="tributary", pg_options=options)
    if backend_of(group).codes != codes:
        raise ValueError(
            f"the group {group.group_name} does not sum codes of {bits} bits: make it with "
            f'pg_options=tributary.torch.Options(options="numbers={codes}"), or leave the group out'
        )
    return group


def with_codes(options: Options, codes: str, world_size: int) -> Options:
    """These options with sums of such codes, which come down as wide as this many ranks need unless they say it."""
    down = {"down": "16"} if codes == CODES[8] and world_size > MOST_NARROW else {}
    chosen = down | options.protocol_options | {"numbers": codes}
    return replace(options, options=",".join(f"{name}={value}" for name, value in chosen.items()))


def compress_hook(state: Compress, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket's gradients as codes in the network; all ranks get the same bits."""
    loss = state.bring(bucket)
    future: Any = backend_of(state.group).all_reduce_with_loss(bucket.buffer(), loss).get_future()
    return future.then(_only)


def _only(future: Any) -> Any:
    return future.value()[0]


def compress_reduce_scatter(model: nn.Module, bits: int = 8, group: Any = None) -> Any:
    """Let FSDP2 sum the gradients of `model`, on which ``fully_shard`` was called, as codes in the network.

    Nothing of what the codes lose comes later: it would take as much memory as the whole model on each rank. Codes of 4
    bits are rounded at random, so that their errors average out; those of 8 bits to the nearest.

    Args:
        model: its parameters stay as they are; only gradients are compressed.
        bits: of the codes, as for :class:`Compress`.
        group: as for :class:`Compress`; the ranks among which the model is sharded.

    Returns:
        The group, of which :func:`tributary.torch.stats` says what was compressed.

    """
    # It takes a third as long to import as PyTorch itself, and most groups do without it.
    from torch.distributed.fsdp import FSDPModule

    modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not modules:
        raise ValueError("no module of the model is sharded: call torch.distributed.fsdp.fully_shard first")
    comm = _ReduceScatter(_group_of(bits, group))
    for module in modules:
        module.set_custom_reduce_scatter(comm)
    return comm.group


class _ReduceScatter:
    """FSDP2's reduce-scatter, in a group that sums codes."""

    def __init__(self, group: Any) -> None:
        self.group = group

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Memory for a reduce-scatter."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False
    ) -> Any:
        """Sum in the group of codes, whose ranks must be those among which the model is sharded."""
        ranks, wanted = (dist.get_process_group_ranks(each) for each in (self.group, group))
        if ranks != wanted:
            raise ValueError(
                f"the model is sharded among the ranks {wanted}, and the group {self.group.group_name} that sums codes "
                f"has the ranks {ranks}: give compress_reduce_scatter a group of the same ranks"
            )
        return dist.reduce_scatter_tensor(output_tensor, input_tensor, op, self.group, async_op)
