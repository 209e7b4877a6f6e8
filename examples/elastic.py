"""Training that goes on when a worker dies, and takes in a spare one later, without restarting anything else.

    python examples/elastic.py
    python examples/elastic.py --workers 4 --steps 200 --kill-at 50 --join-at 120

This process starts the workers and a spare, kills one of the workers in the middle, and says in each round who is a
member; in a cluster a scheduler does that. The workers train; what they agree on goes through a store.
"""

import argparse
import json
import multiprocessing
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from ddp import digest, digits, network
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PATIENCE = timedelta(seconds=60)


def work(worker: int, port: int, steps: int) -> None:
    """Train until all steps are done, with whoever is a member."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=PATIENCE)
    # Rank and size are those of a group that has no members yet.
    alone = {"rank": 0, "world_size": 1, "store": dist.PrefixStore("group", store), "timeout": PATIENCE}
    dist.init_process_group("tributary", enable_reconfigure=True, **alone)
    store.set(f"handle/{worker}", dist._get_reconfigure_handle())
    model, step, round_seen = network(), 0, 0
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    while step < steps:
        round_seen, members = next_round(store, round_seen)
        if worker not in members:
            continue
        try:
            dist._reconfigure(round_seen, [store.get(f"handle/{member}").decode() for member in members]).wait()
            # The first has been here longest: all go on from what it knows.
            state = [(step, model.state_dict(), optimizer.state_dict())]
            dist.broadcast_object_list(state, group_src=0)
            step = state[0][0]
            model.load_state_dict(state[0][1])
            optimizer.load_state_dict(state[0][2])
            step = train(store, model, optimizer, step, steps, round_seen)
        except RuntimeError as error:
            step = progress(optimizer)
            if dist.get_rank() == 0:
                print(f"worker {worker}, after step {step}: {str(error).splitlines()[0]}", flush=True)
    digests: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(digests, digest(model))
    if len(set(digests)) != 1:
        raise SystemExit(f"members hold different parameters: {digests}")
    if dist.get_rank() == 0:
        print(f"all {len(digests)} members hold the same parameters: {digests[0]}", flush=True)
    dist.destroy_process_group()


def next_round(store: dist.Store, seen: int) -> tuple[int, list[int]]:
    """Wait until there is a round after the one that was seen; its number and its members."""
    while (newest := store.add("round", 0)) == seen:
        time.sleep(0.01)
    return newest, json.loads(store.get(f"members/{newest}"))


def progress(optimizer: torch.optim.Optimizer) -> int:
    """The steps that the optimizer has made."""
    states = optimizer.state_dict()["state"].values()
    return int(max((state["step"].item() for state in states), default=0))


def train(
    store: dist.Store, model: nn.Module, optimizer: torch.optim.Optimizer, step: int, steps: int, round_seen: int
) -> int:
    """Train with the members of now until the steps are done or there is a new round; the number of steps then."""
    rank, size = dist.get_rank(), dist.get_world_size()
    x, y = digits()[0].tensors
    parallel = DistributedDataParallel(model)
    while step < steps:
        draw = torch.Generator().manual_seed(step * 1000 + rank)
        batch = torch.randint(0, len(x), (25,), generator=draw)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(parallel(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        step += 1
        # All leave together where one of them has seen that there is a new round.
        sums = torch.tensor([loss.item() / size, float(store.add("round", 0) > round_seen)])
        dist.all_reduce(sums)
        if rank == 0:
            store.set("step", str(step))
            if step % 10 == 0 or sums[1] > 0:
                print(f"step {step:3}  {size} members  loss {sums[0].item():.4f}", flush=True)
        if sums[1] > 0:
            break
    return step


def main() -> None:
    """Start the workers and a spare; say who is a member, and see to it that it changes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=3, help="at the beginning (default: 3)")
    parser.add_argument("--steps", type=int, default=120, help="(default: 120)")
    parser.add_argument("--kill-at", type=int, default=40, help="the step after which one is killed (default: 40)")
    parser.add_argument("--join-at", type=int, default=80, help="the step after which the spare joins (default: 80)")
    args = parser.parse_args()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store.set("step", "0")
    context = multiprocessing.get_context("spawn")
    everybody = range(args.workers + 1)
    processes = [context.Process(target=work, args=(worker, store.port, args.steps)) for worker in everybody]
    for process in processes:
        process.start()
    store.wait([f"handle/{worker}" for worker in everybody], PATIENCE)
    *members, victim = range(args.workers)
    announce(store, [*members, victim])
    wait_for(store, args.kill_at, processes)
    processes[victim].kill()
    print(f"worker {victim} was killed", flush=True)
    announce(store, members)
    wait_for(store, args.join_at, processes)
    print(f"worker {args.workers} joins", flush=True)
    announce(store, [*members, args.workers])
    for process in processes:
        process.join()
    if any(process.exitcode for worker, process in enumerate(processes) if worker != victim):
        raise SystemExit("a worker failed")


def announce(store: dist.Store, members: list[int]) -> None:
    """A round begins, with these members; the first of them tells the others where training stands."""
    store.set(f"members/{store.add('round', 0) + 1}", json.dumps(members))
    store.add("round", 1)


def wait_for(store: dist.Store, step: int, processes: list[multiprocessing.process.BaseProcess]) -> None:
    """Wait until this many steps are done."""
    while int(store.get("step")) < step:
        if any(process.exitcode for process in processes[:-1] if process.exitcode != -9):
            raise SystemExit("a worker failed")
        time.sleep(0.01)


if __name__ == "__main__":
    main()
