"""A process group whose rank and size change.

PyTorch's own group takes them from the arguments of its backend's constructor. A backend that is written in Python
cannot change those later, so the group itself is one of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from tributary.torch.backend import TributaryBackend


class ElasticGroup(dist.ProcessGroup):
    """The group of a backend that can be reconfigured; all else is PyTorch's."""

    def __init__(self, store: dist.Store, backend: TributaryBackend, devices: Sequence[str]) -> None:
        super().__init__(store, backend.rank(), backend.size())
        self._backend = backend
        kind = dist.ProcessGroup.BackendType.CUSTOM
        for device in devices:
            self._register_backend(torch.device(device), kind, backend)
        self._set_default_backend(kind)

    def rank(self) -> int:
        """This process's rank among the present members."""
        return self._backend.rank()

    def size(self) -> int:
        """How many members there are at present."""
        return self._backend.size()

    # The names that C++ calls.
    getRank = rank  # noqa: N815
    getSize = size  # noqa: N815

    @property
    def supports_abort_hooks(self) -> bool:
        """True: hooks are called at the first failure among the same members, and by ``abort``."""
        return True

    def register_abort_hook(self, hook_id: int, hook: Callable[[], None]) -> None:
        """Call this before the group gives up."""
        self._backend.register_abort_hook(hook_id, hook)

    def unregister_abort_hook(self, hook_id: int) -> None:
        """Remove the hook with this id."""
        self._backend.unregister_abort_hook(hook_id)
