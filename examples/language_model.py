"""Train a small language model on the text of this repository's own documents, byte by byte.

    torchrun --nproc-per-node 4 examples/language_model.py
    torchrun --nproc-per-node 4 examples/language_model.py --bits 4
    TRIBUTARY_PROTOCOL=flare torchrun --nproc-per-node 4 examples/language_model.py --topk 0.01

With --bits gradients travel as codes of 8 or 4 bits, with --bf16 as bfloat16. With --topk each rank sends that share of
its gradients only, the largest, under a protocol that sums sparse tensors. Prints bits per byte: of the steps, and at
the end of text that the model has not seen.
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


def texts() -> tuple[torch.Tensor, torch.Tensor]:
    """The bytes of the documents, in chunks of 4 KiB: every tenth to test, the others to learn from."""
    root = Path(__file__).parent.parent
    text = b"".join(path.read_bytes() for path in sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")]))
    chunks = torch.frombuffer(bytearray(text), dtype=torch.uint8).long().split(4096)
    test = [chunk for at, chunk in enumerate(chunks) if at % 10 == 9]
    return torch.cat([chunk for at, chunk in enumerate(chunks) if at % 10 != 9]), torch.cat(test)


def bits_and_bytes(model: nn.Module, text: torch.Tensor, context: int) -> torch.Tensor:
    """The bits that the model needs for this rank's share of a text, and the bytes of that."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    windows = text.unfold(0, context + 1, context)[rank::world_size]
    with torch.no_grad():
        losses = [
            nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten(), reduction="sum")
            for batch in windows.split(32)
        ]
    return torch.stack([torch.stack(losses).sum() / math.log(2), torch.tensor(float(windows.shape[0] * context))])


def main() -> None:
    """Train on every rank; rank 0 speaks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="tributary")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bits", type=int, help="of the codes as which gradients travel")
    parser.add_argument("--bf16", action="store_true", help="gradients travel as bfloat16")
    parser.add_argument("--topk", type=float, metavar="RATIO", help="send this share of the gradients only")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    dist.init_process_group(args.backend, timeout=timedelta(seconds=60))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    learn, test = texts()
    model = DistributedDataParallel(LanguageModel(args.width, args.layers, args.context))
    if args.bits is not None:
        model.register_comm_hook(tributary.torch.Compress(model, args.bits), tributary.torch.compress_hook)
    if args.bf16:
        model.register_comm_hook(None, bf16_compress_hook)
    if args.topk is not None:
        model.register_comm_hook(tributary.torch.TopK(ratio=args.topk), tributary.torch.topk_hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draw = torch.Generator().manual_seed(args.seed * world_size + rank)
    if rank == 0:
        count = sum(parameter.numel() for parameter in model.parameters())
        print(f"{count:,} parameters, {len(learn):,} bytes of text, {world_size} ranks", flush=True)
    start = time.perf_counter()
    for step in range(1, args.steps + 1):
        starts = torch.randint(len(learn) - args.context - 1, (8,), generator=draw)
        windows = torch.stack([learn[start : start + args.context + 1] for start in starts.tolist()])
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
    unseen = bits_and_bytes(model.module, test, args.context)
    dist.all_reduce(unseen)
    if rank == 0:
        print(f"of text that it has not seen {unseen[0].item() / unseen[1].item():.4f} bits per byte", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
