"""PyTorch trains through the network: ``torch.distributed.init_process_group("tributary")``.

PyTorch finds the backend by itself, through the entry-point group ``torch.distributed.backends``; import this package
for what goes beyond it: :class:`Options`, :func:`stats`, :func:`flight_record`, :func:`all_reduce_hook`,
:func:`all_reduce` with operators of one's own, :class:`Combine`, :class:`TopK`, :class:`Compress`, :class:`Steps` and
:func:`record_step`.
See ``docs/torch.md``.
"""

import torch
from torch._C._distributed_c10d import Backend

if not hasattr(Backend, "all_gather_single"):
    raise ImportError(
        f"tributary.torch needs PyTorch 2.14 or newer, and this is {torch.__version__}: older versions have no "
        "backends that are written in Python; install a newer one with pip install 'tributary-ina[torch]'"
    )

from tributary.torch.backend import TributaryBackend
from tributary.torch.combine import Combine, all_reduce, combine_hook
from tributary.torch.compress import Compress, compress_hook, compress_reduce_scatter
from tributary.torch.flight import flight_record, write_flight_record
from tributary.torch.hook import all_reduce_hook
from tributary.torch.ledger import Entry, Share, Stats
from tributary.torch.options import Options
from tributary.torch.plugin import register, stats
from tributary.torch.record import record_step
from tributary.torch.step_costs import Step, Steps
from tributary.torch.topk import TopK, topk_hook

__all__ = [
    "Combine",
    "Compress",
    "Entry",
    "Options",
    "Share",
    "Stats",
    "Step",
    "Steps",
    "TopK",
    "TributaryBackend",
    "all_reduce",
    "all_reduce_hook",
    "combine_hook",
    "compress_hook",
    "compress_reduce_scatter",
    "flight_record",
    "record_step",
    "register",
    "stats",
    "topk_hook",
    "write_flight_record",
]

register()
