"""Train a small convolutional network on real digits with DDP, through the network and over Gloo, side by side.

    torchrun --nproc-per-node 4 examples/ddp.py --backend tributary
    torchrun --nproc-per-node 4 examples/ddp.py --backend gloo
    torchrun --nproc-per-node 4 examples/ddp.py --bits 8
    TRIBUTARY_PROTOCOL=flare torchrun --nproc-per-node 4 examples/ddp.py --topk 0.01 --epochs 20

With --bits gradients travel as codes of 8 or 4 bits, with --bf16 as bfloat16. With --topk each rank sends that share of
its gradients only, the largest, under a protocol that sums sparse tensors.
Prints loss and accuracy of each epoch, and whether all ranks ended with the same parameters, bit for bit.
"""

import argparse
import hashlib
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import tributary.torch


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1,797 handwritten digits of 8 by 8 pixels that come with scikit-learn: 1,500 to learn from, the rest to test."""
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    y = torch.tensor(labels)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    learn, test = order[:1500], order[1500:]
    return TensorDataset(x[learn], y[learn]), TensorDataset(x[test], y[test])


def network() -> nn.Module:
    """Two convolutions and two layers, some 150,000 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def digest(model: nn.Module) -> str:
    """The bits of all parameters."""
    sha = hashlib.sha256()
    for parameter in model.parameters():
        sha.update(parameter.detach().numpy().tobytes())
    return sha.hexdigest()[:16]


def main() -> None:
    """Train on every rank; rank 0 speaks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="tributary")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bits", type=int, help="of the codes as which gradients travel")
    parser.add_argument("--bf16", action="store_true", help="gradients travel as bfloat16")
    parser.add_argument("--topk", type=float, metavar="RATIO", help="send this share of the gradients only")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    dist.init_process_group(args.backend, timeout=timedelta(seconds=60))
    speaks = dist.get_rank() == 0
    learn, test = digits()
    sampler = DistributedSampler(learn, seed=args.seed)
    batches = DataLoader(learn, batch_size=25, sampler=sampler)
    model = DistributedDataParallel(network())
    if args.bits is not None:
        compress = tributary.torch.Compress(model, bits=args.bits)
        model.register_comm_hook(compress, tributary.torch.compress_hook)
    if args.bf16:
        model.register_comm_hook(None, bf16_compress_hook)
    if args.topk is not None:
        model.register_comm_hook(tributary.torch.TopK(ratio=args.topk), tributary.torch.topk_hook)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        start, losses = time.perf_counter(), 0.0
        for x, y in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses += loss.item()
        seconds = (time.perf_counter() - start) / len(batches)
        mean = torch.tensor([losses / len(batches) / dist.get_world_size()])
        dist.all_reduce(mean)
        with torch.no_grad():
            x, y = test.tensors
            accuracy = (model.module(x).argmax(1) == y).float().mean().item()
        if speaks:
            line = f"loss {mean.item():.4f}  accuracy {accuracy:.2%}  {seconds * 1e3:.1f} ms per step"
            print(f"{args.backend:9}  epoch {epoch + 1}  {line}", flush=True)
    digests: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(digests, digest(model))
    if len(set(digests)) != 1:
        raise SystemExit(f"ranks hold different parameters: {digests}")
    if speaks:
        print(f"{args.backend:9}  all {len(digests)} ranks hold the same parameters: {digests[0]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
