"""Train a small language model on the text of this repository's own documents, byte by byte.

    torchrun --nproc-per-node 4 examples/language_model.py

Gradients travel as bfloat16 (DDP's own compression hook), or with --bits as codes of 8 or 4 bits, and are summed in the
switch. Prints bits per byte.
"""

import argparse
import math
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

import tributary.torch


class LanguageModel(nn.Module):
    """A decoder-only transformer over bytes."""

    def __init__(self, width: int, layers: int, context: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        self.positions = nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(
            width, max(1, width // 32), 4 * width, 0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(width, 256)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of the next byte, for every place."""
        length = x.shape[1]
        hidden = self.bytes(x) + self.positions(torch.arange(length))
        return self.out(self.layers(hidden, mask=self.mask[:length, :length], is_causal=True))


def main() -> None:
    """Train on every rank; rank 0 speaks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="tributary")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--bits", type=int, help="of the codes as which gradients travel")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group(args.backend, timeout=timedelta(seconds=60))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    root = Path(__file__).parent.parent
    text = b"".join(path.read_bytes() for path in sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")]))
    corpus = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    model = DistributedDataParallel(LanguageModel(args.width, args.layers, args.context))
    if args.bits is None:
        model.register_comm_hook(None, bf16_compress_hook)
    else:
        model.register_comm_hook(tributary.torch.Compress(model, args.bits), tributary.torch.compress_hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draw = torch.Generator().manual_seed(rank)
    if rank == 0:
        count = sum(parameter.numel() for parameter in model.parameters())
        print(f"{count:,} parameters, {len(corpus):,} bytes of text, {world_size} ranks", flush=True)
    start = time.perf_counter()
    for step in range(1, args.steps + 1):
        starts = torch.randint(len(corpus) - args.context - 1, (8,), generator=draw)
        windows = torch.stack([corpus[start : start + args.context + 1] for start in starts.tolist()])
        loss = nn.functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, args.steps // 10) == 0:
            mean = loss.detach() / world_size
            dist.all_reduce(mean)
            if rank == 0:
                seconds = (time.perf_counter() - start) / step
                print(f"step {step:4}  {mean.item() / math.log(2):.3f} bits per byte  {seconds * 1e3:.0f} ms per step")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
