"""How PyTorch finds the backend and makes groups of it; and the groups of this process."""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from tributary.torch import work_patch
from tributary.torch.backend import NAME, TributaryBackend, log
from tributary.torch.elastic import ElasticGroup
from tributary.torch.ledger import Stats
from tributary.torch.options import Options, effective_timeout
from tributary.torch.rendezvous import refuse

#: The groups of this process by name, until they are shut down.
groups: dict[str, TributaryBackend] = {}
#: The numbers of groups that were shut down since the last end of a default group.
_ended: list[Stats] = []


#: The devices whose tensors the backend takes.
_DEVICES = ("cpu", "cuda")


def _create(opts: Any, pg_options: object | None) -> TributaryBackend | ElasticGroup:
    """Make a new group; PyTorch calls this."""
    work_patch.apply()
    _log_to_stderr()
    try:
        options = _options(pg_options)
    except Exception as error:
        if not opts.enable_reconfigure:
            refuse(opts.store, opts.group_rank, opts.group_size, error)
        raise
    ranks = opts.global_ranks_in_group
    backend = _group(
        opts.store,
        opts.group_rank,
        opts.group_size,
        opts.group_id,
        opts.timeout,
        ranks,
        options,
        opts.enable_reconfigure,
    )
    return ElasticGroup(opts.store, backend, _DEVICES) if opts.enable_reconfigure else backend


def _log_to_stderr() -> None:
    """Show what the backend logs, unless the program has said where logs go."""
    if not log.hasHandlers():
        log.addHandler(logging.StreamHandler(sys.stderr))
        log.handlers[0].setFormatter(logging.Formatter("tributary: %(message)s"))
        log.setLevel(logging.INFO)


def _group(
    store: dist.Store,
    rank: int,
    size: int,
    name: str,
    timeout: timedelta,
    global_ranks: Sequence[int],
    options: Options,
    reconfigurable: bool = False,
) -> TributaryBackend:
    default = _default_group()
    backend = TributaryBackend(
        store,
        rank,
        size,
        name=name,
        timeout=effective_timeout(timeout, options, default.options._timeout if default else None),
        options=options,
        global_ranks=global_ranks,
        reconfigurable=reconfigurable,
        on_end=lambda orderly: _end(name, orderly),
        on_split=_split,
    )
    groups[name] = backend
    return backend


def _split(parent: TributaryBackend, store: dist.Store, ranks: Sequence[int], opts: Any) -> TributaryBackend | None:
    """Make a group of some of a group's ranks, in this order; None for a rank that is not among them."""
    if parent.rank() not in ranks:
        return None
    # PyTorch asks once for each kind of device.
    if (made := groups.get(opts.group_name)) is not None:
        return made
    of_parent = parent.options.global_ranks_in_group or range(parent.size())
    name, rank, globally = opts.group_name, list(ranks).index(parent.rank()), [of_parent[rank] for rank in ranks]
    return _group(store, rank, len(ranks), name, opts._timeout, globally, parent._given)


def _default_group() -> TributaryBackend | None:
    return next((group for group in groups.values() if group.is_default()), None)


def _options(given: object | None) -> Options:
    if given is None:
        return options_here()
    if not isinstance(given, Options):
        raise TypeError(
            f"pg_options of the tributary backend are tributary.torch.Options, not {type(given).__qualname__}: leave "
            "them out, or say which backend they are for, such as new_group(..., backend='gloo')"
        )
    return given


def options_here() -> Options:
    """The options of a group that is given none: those of the default group, or of the environment."""
    default = _default_group()
    return Options.from_environment() if default is None else default._given


def _end(name: str, orderly: bool) -> None:
    """Note that a group was shut down. The default group's end is the end of a run, and logs what all groups did."""
    group = groups.pop(name)
    own = group.stats()
    _ended.append(own)
    speaks = orderly and group.rank() == 0
    if not group.is_default():
        if speaks:
            log.debug("group %s, rank 0 of %d: %s", name, group.size(), own)
        return
    everything = [*_ended, *(other.stats() for other in groups.values())]
    _ended.clear()
    if speaks:
        who = f"group {name}" if len(everything) == 1 else f"{len(everything)} groups"
        log.info("%s, rank 0 of %d: %s", who, group.size(), Stats.of_all(everything))


def register() -> None:
    """Make the backend known to PyTorch, which calls this through the entry point. Calling it again has no effect.

    The import of the package calls it, too: PyTorch reads the entry points of all that is installed to find a backend.
    """
    if hasattr(dist.Backend, NAME.upper()):
        return
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=list(_DEVICES))
    atexit.register(_leave_all)


def _leave_all() -> None:
    """Leave the jobs of groups that were not destroyed: no thread may wait in the network while Python shuts down."""
    for group in list(groups.values()):
        group.end()


def stats(group: dist.ProcessGroup | None = None) -> Stats:
    """Which bytes this rank summed where in a group, by default the group of all ranks."""
    return backend_of(group).stats()


def backend_of(group: dist.ProcessGroup | None = None) -> TributaryBackend:
    """Return the backend of a group, by default the group of all ranks."""
    process_group = group or dist.group.WORLD
    if process_group is None:
        raise RuntimeError("there is no process group; call torch.distributed.init_process_group first")
    backend = groups.get(process_group.group_name)
    if backend is None:
        raise ValueError(f"the group {process_group.group_name} has no tributary backend")
    return backend
