"""The way of a GPU's tensors through host memory: the order of copies, with streams that are made up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import torch_rank_staged
from conftest import Ranks
from torch_rank_staged import LazyStreams
from tributary.torch import staging, tensors
from tributary.torch.operands import Operands


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> LazyStreams:
    """Tensors of the host that count as a GPU's, whose streams do nothing until somebody waits for them."""
    streams = LazyStreams()
    monkeypatch.setattr(staging, "streams", streams)
    monkeypatch.setattr(staging, "is_staged", streams.has)
    return streams


def test_what_is_fetched_is_as_the_callers_stream_left_it(gpu: LazyStreams) -> None:
    tensor = gpu.tensor(torch.zeros(3, 2).t())
    gpu.launch(lambda: tensor.fill_(7))
    host, _ = tensors.flat(tensor)
    assert torch.equal(host, torch.full((2, 3), 7.0))
    assert host.is_contiguous()


def test_a_result_comes_back_after_earlier_kernels_and_before_the_operation_ends(gpu: LazyStreams) -> None:
    seen: list[Any] = []
    tensor = gpu.tensor(torch.ones(3))
    gpu.launch(lambda: seen.append(tensor.tolist()))
    # Only written, as by a broadcast: nothing has waited for the kernel that still reads it.
    finish = tensors.way_back(tensor, torch.full((3,), 5.0))
    finish()
    assert seen == [[1.0, 1.0, 1.0]]
    assert tensor.tolist() == [5.0, 5.0, 5.0]


def test_a_kernel_that_comes_later_does_not_hold_the_result_back(gpu: LazyStreams) -> None:
    tensor = gpu.tensor(torch.ones(3))
    finish = tensors.way_back(tensor, torch.full((3,), 5.0))
    later: list[Any] = []
    gpu.launch(lambda: later.append(tensor.tolist()))
    finish()
    assert tensor.tolist() == [5.0, 5.0, 5.0]
    assert later == []


def test_a_gpus_tensor_is_broadcast_from_and_into_memory_of_the_host(gpu: LazyStreams) -> None:
    tensor = gpu.tensor(torch.arange(5, dtype=torch.float64))
    sent = tensors.source_of(tensor)
    assert sent.data_ptr() != tensor.data_ptr()
    assert sent.tolist() == [0, 1, 2, 3, 4]
    received, finish = tensors.landing(tensor)
    assert received.data_ptr() != tensor.data_ptr()
    received.fill_(9)
    assert finish is not None
    finish()
    assert tensor.tolist() == [9] * 5


def test_on_the_host_path_only_what_gloo_writes_comes_back(gpu: LazyStreams) -> None:
    out, source = gpu.tensor(torch.zeros(2)), gpu.tensor(torch.ones(2))
    staged = Operands.of([[[out]], [source], "options"], [out], writes=True, as_bytes=False)
    [[host_out]], [host_source], options = staged.arguments
    assert options == "options"
    assert staged.scaled[0] is host_out
    host_out.fill_(3)
    host_source.fill_(4)
    steps: list[str] = []
    after: Callable[[], None] | None = staged.after(lambda: steps.append(f"divided {out.tolist()}"))
    assert after is not None
    after()
    assert steps == ["divided [0.0, 0.0]"]
    assert (out.tolist(), source.tolist()) == ([3.0, 3.0], [1.0, 1.0])
    assert Operands.of([[source]], [], writes=False, as_bytes=False).back == []


def test_whole_operations_on_tensors_that_are_staged(ranks: Ranks, tmp_path: Path) -> None:
    ranks(torch_rank_staged.staged, 2, str(tmp_path / "meet"))
