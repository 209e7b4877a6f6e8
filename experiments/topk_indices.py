"""Record which gradients ranks send that send one of 512: the indices of each of 64 ranks in a step of a training.

    python experiments/topk_indices.py target/topk-indices.txt
    tributary reproduce flare-fig15 --vary        # has a setting with this file

A residual network of 6.8 million parameters, ResNet-18 with narrower layers, learns scikit-learn's handwritten digits,
at 16 by 16 pixels. After some steps with all gradients, each rank sends the largest of each 512 of its own, and adds
the rest to those of its next step, as under SparCML (Flare, section 7.1). The file has the indices of the last step.
All ranks are in this process, one after the other.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

#: Elements of the tensor of flare-fig15, 25 MiB: as many gradients are recorded, in the order of the parameters.
ELEMENTS = 25 * 2**20 // 4

#: A rank sends one element of each bucket.
BUCKET = 512


class Block(nn.Module):
    """Two convolutions beside a connection that skips them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        """A stride above 1 makes images smaller."""
        super().__init__()
        self.long = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.short: nn.Module = nn.Identity()
        if stride > 1:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Their sum."""
        return nn.functional.relu(self.long(x) + self.short(x))


def network(width: int = 50) -> nn.Module:
    """ResNet-18 for small images, with layers of `width` channels and more; the original has 64."""
    layers: list[nn.Module] = [nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    channels = width
    for stage in range(4):
        outputs = width * 2**stage
        layers += [Block(channels, outputs, 1 if stage == 0 else 2), Block(outputs, outputs, 1)]
        channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def batches(size: int, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Images and labels, in another order in each epoch, without an end."""
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    x, y = nn.functional.interpolate(x, scale_factor=2, mode="bilinear"), torch.tensor(labels)
    draw = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(x), generator=draw)
        for at in range(0, len(order) - size + 1, size):
            yield x[order[at : at + size]], y[order[at : at + size]]


def gradients(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, float]:
    """All gradients of a batch, one after the other, and its loss."""
    model.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    return torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None]), loss.item()


def descend(model: nn.Module, gradient: torch.Tensor, rate: float) -> None:
    """Go a step down the gradient."""
    at = 0
    with torch.no_grad():
        for one in model.parameters():
            one -= rate * gradient[at : at + one.numel()].view_as(one)
            at += one.numel()


def largest(gradient: torch.Tensor) -> torch.Tensor:
    """The index of the largest element of each bucket; what is left behind the last whole bucket has none."""
    whole = gradient[: len(gradient) // BUCKET * BUCKET].view(-1, BUCKET)
    return whole.abs().argmax(1) + BUCKET * torch.arange(len(whole))


def recorded(ranks: int, dense: int, sparse: int, batch: int, rate: float) -> list[torch.Tensor]:
    """Train, and return the indices that each rank sends in the last step."""
    model = network()
    feed = batches(batch, seed=1)
    for step in range(dense):
        together = [next(feed) for _ in range(8)]
        x, y = (torch.cat(tensors) for tensors in zip(*together, strict=True))
        gradient, loss = gradients(model, x, y)
        descend(model, gradient, rate)
        print(f"step {step + 1} of {dense} with all gradients: loss {loss:.3f}", flush=True)
    left = [torch.zeros_like(gradient) for _ in range(ranks)]
    for step in range(sparse):
        total, losses, sent = torch.zeros_like(gradient), 0.0, []
        for own in left:
            gradient, loss = gradients(model, *next(feed))
            own += gradient
            indices = largest(own)
            total[indices] += own[indices]
            own[indices] = 0
            losses += loss
            sent.append(indices)
        descend(model, total / ranks, rate)
        print(f"step {step + 1} of {sparse} with one of {BUCKET}: loss {losses / ranks:.3f}", flush=True)
    return sent


def main() -> int:
    """Record, and say how much ranks' indices overlap."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--dense", type=int, default=30, help="steps with all gradients, before")
    parser.add_argument("--sparse", type=int, default=10, help="steps with one of 512")
    parser.add_argument("--batch", type=int, default=8, help="images of a rank and step")
    args = parser.parse_args()
    torch.manual_seed(1)
    sent = [one[one < ELEMENTS] for one in recorded(args.ranks, args.dense, args.sparse, args.batch, rate=0.05)]
    union = torch.cat(sent).unique()
    text = f"{args.ranks} ranks with {len(sent[0])} of {ELEMENTS} elements each, {len(union)} different ones"
    lines = [f"# experiments/topk_indices.py: {text}", *(" ".join(map(str, one.tolist())) for one in sent)]
    args.file.parent.mkdir(parents=True, exist_ok=True)
    args.file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    alike = BUCKET * (1 - (1 - 1 / BUCKET) ** args.ranks)
    print(f"{text}: {len(union) / len(sent[0]):.1f} times one rank's, where indices at random have {alike:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
