"""What else of PyTorch's distributed package was tried and works, each at a small size. docs/torch.md has the list."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import torch_rank_wider
from conftest import Ranks
from torch_program import torchrun


@pytest.fixture
def meet(tmp_path: Path) -> str:
    """A file in which the ranks meet."""
    return str(tmp_path / "meet")


def test_join_lets_ranks_have_different_numbers_of_batches(ranks: Ranks, meet: str) -> None:
    outcomes = ranks(torch_rank_wider.uneven, 3, meet)
    assert [steps for steps, _ in outcomes] == [2, 3, 4]
    assert len({bits for _, bits in outcomes}) == 1


def test_no_sync_accumulates_without_a_sum(ranks: Ranks, meet: str) -> None:
    assert len(set(ranks(torch_rank_wider.accumulating, 2, meet))) == 1


def test_a_static_graph_takes_models_that_are_computed_twice(ranks: Ranks, meet: str) -> None:
    assert len(set(ranks(torch_rank_wider.static_graph, 2, meet))) == 1


def test_hsdp_of_two_by_two_sums_in_both_directions_of_its_mesh(ranks: Ranks, meet: str) -> None:
    for counted in ranks(torch_rank_wider.hybrid_sharded, 4, meet):
        # Of two layers in three steps.
        assert counted == {"reduce_scatter_single": 6, "all_reduce": 6}


def test_partial_sums_of_dtensor_become_replicas_and_shards(ranks: Ranks, meet: str) -> None:
    ranks(torch_rank_wider.sharded_tensors, 2, meet)


def test_tensor_parallel_layers_are_the_whole_layers(ranks: Ranks, meet: str) -> None:
    ranks(torch_rank_wider.tensor_parallel, 2, meet)


@pytest.mark.parametrize("how", ["save", "async_save"])
def test_a_distributed_checkpoint_brings_the_parameters_back(ranks: Ranks, meet: str, tmp_path: Path, how: str) -> None:
    assert len(set(ranks(torch_rank_wider.checkpointed, 2, meet, str(tmp_path / "saved"), how))) == 1


@pytest.mark.parametrize("how", ["model", "step"])
def test_compiled_training_is_the_same_and_warns_of_nothing(ranks: Ranks, meet: str, how: str) -> None:
    assert ranks(torch_rank_wider.compiled, 2, meet, how) == [[], []]


def test_loaders_whose_workers_fork(ranks: Ranks, meet: str) -> None:
    total = 2 * sum(number * number for number in range(24))
    assert ranks(torch_rank_wider.loading, 2, meet) == [total, total]


LIGHTNING = r"""
import sys, warnings
warnings.simplefilter("ignore")
import pytorch_lightning as lightning, torch
from pytorch_lightning.strategies import DDPStrategy
from tributary.torch import stats
from torch_groups import digest

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layer = torch.nn.Linear(8, 4)
    def training_step(self, batch, _):
        return self.layer(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
    def on_train_end(self):
        bits, sums = digest(*self.parameters()), stats().network["all_reduce"].collectives
        print(f"trained {bits} with {sums} sums\n", end="", flush=True)

data = torch.utils.data.TensorDataset(torch.randn(32, 8, generator=torch.Generator().manual_seed(2)))
trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend="tributary"), max_epochs=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=sys.argv[1],
)
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=4))
"""


def test_lightning_trains_with_its_ddp_strategy(tmp_path: Path) -> None:
    pytest.importorskip("pytorch_lightning", reason="Lightning is not installed; `make test-torch` installs it")
    script = tmp_path / "trains.py"
    script.write_text(LIGHTNING)
    ran = torchrun(str(script), str(tmp_path), PYTHONPATH=str(Path(__file__).parent / "programs"))
    assert ran.returncode == 0, ran.stderr
    lines = [line.split() for line in ran.stdout.splitlines() if line.startswith("trained")]
    assert len(lines) == 2, ran.stdout
    assert lines[0] == lines[1], "every rank has the same parameters"
    # A step's gradients fit one bucket; there are 32 rows, four a batch, two ranks.
    assert int(lines[0][3]) >= 4
