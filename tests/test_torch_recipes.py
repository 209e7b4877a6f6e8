"""The recipes of the pages: they train, word by word as the pages have them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

from rank_sparse import PROTOCOL
from torch_program import ROOT, torchrun

#: A model whose gradients are as small as those of a mean over half a million outputs, and what a page does with it.
TRAINS = r"""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import tributary
import tributary.torch

torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 512))
{setup}
{recipe}
draw = torch.Generator().manual_seed(dist.get_rank())
target = torch.randn(8, 512, generator=torch.Generator().manual_seed(9))
losses = []
for _ in range(60):
    x = torch.randn(32, 8, generator=draw)
    loss = (model(x) - x @ target).square().mean()
    model.zero_grad()
    (loss / 1000).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 30_000 * parameter.grad
    losses.append(loss.item())
total = sum(parameter.double().sum() for parameter in model.parameters()).item()
print(f"trained {{losses[0]}} {{sum(losses[-5:]) / 5}} {{total}}\n", end="", flush=True)
dist.destroy_process_group()
"""
SETUP = """
dist.init_process_group("tributary")
model = DistributedDataParallel(model)
"""


def blocks_of(page: str) -> list[str]:
    """The blocks of Python on a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def trained(tmp_path: Path, recipe: str, **variables: str) -> tuple[float, float]:
    """The first loss of rank 0, and its last ones, with this recipe; both ranks have the same parameters then."""
    script = tmp_path / "trains.py"
    script.write_text(TRAINS.format(setup="" if "init_process_group" in recipe else SETUP, recipe=recipe))
    ran = torchrun(str(script), processes=2, **variables)
    assert ran.returncode == 0, ran.stderr
    ends = [line.split()[1:] for line in ran.stdout.splitlines() if line.startswith("trained")]
    assert len(ends) == 2, ran.stdout
    assert ends[0][2] == ends[1][2], "every rank has the same parameters"
    return float(ends[0][0]), float(ends[0][1])


#: The hooks of docs/torch.md by a word that they have, and the protocol that they need.
HOOKS = [("eight_bits", "auto"), ("TopK", PROTOCOL), ("all_reduce_hook", "auto"), ("compress_hook", "auto")]


@pytest.mark.parametrize(("word", "protocol"), HOOKS)
def test_the_hooks_of_the_page_train(tmp_path: Path, word: str, protocol: str) -> None:
    (recipe,) = (block for block in blocks_of("docs/torch.md") if word in block)
    first, last = trained(tmp_path, recipe, TRIBUTARY_PROTOCOL=protocol)
    assert last < first / 2


def test_every_hook_of_the_page_is_tested() -> None:
    hooks = [block for block in blocks_of("docs/torch.md") if "register_comm_hook" in block]
    assert len(hooks) == len(HOOKS)
