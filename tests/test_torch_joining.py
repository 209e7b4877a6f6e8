"""How ranks meet: the address of rank 0's switch, and failures of a join, which all ranks learn at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import torch.distributed as dist

import torch_rank_joining
from conftest import Ranks
from program import ENVIRONMENT, Daemon, finish, last_json, run
from test_servers import offer, ready
from tributary import _core
from tributary.errors import ConnectError
from tributary.torch import Options, addresses, rendezvous
from tributary.torch.join_steps import JoinSteps
from tributary.torch.rendezvous import Rendezvous

#: Longer than any test here waits: a rank that waits for the timeout fails the test by hanging.
ONE_HOUR = timedelta(hours=1)
#: The protocols of switches below switches.
IN_LEVELS = [
    name for name in _core.protocols() if _core.summed_by_switches(name) and not _core.processed_at_every_hop(name)
]


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What each rank's work returned or raised, each in a thread of its own."""

    def outcome(rank: int) -> Any:
        try:
            return work(rank)
        except Exception as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(outcome, range(count)))


def steps(store: dist.Store, rank: int, size: int, patience: timedelta = ONE_HOUR) -> JoinSteps:
    return JoinSteps(store, "join", rank, size, patience, ("here", "where", "joined"))


def test_a_failure_at_any_step_ends_the_waits_of_all_others_with_its_sentence() -> None:
    for failing in ("here", "where", "joined"):
        store = dist.HashStore()

        def join(rank: int, store: dist.Store = store, failing: str = failing) -> None:
            mine = steps(store, rank, 3)
            with mine.in_common():
                for step in ("here", "where", "joined"):
                    if rank == 1 and step == failing:
                        raise OSError("its cable is cut")
                    mine.gather(step)

        outcomes = together(3, join)
        assert isinstance(outcomes[1], OSError)
        for rank in (0, 2):
            assert isinstance(outcomes[rank], ConnectError), failing
            assert str(outcomes[rank]) == "rank 1 could not join: its cable is cut"


def test_a_rank_that_waits_elsewhere_sees_the_failure_when_it_polls() -> None:
    store = dist.HashStore()
    waiting, failing = steps(store, 0, 2), steps(store, 1, 2)
    waiting.poll_failure()
    failing.fail(OSError("no route"))
    time.sleep(0.2)  # It asks now and then only.
    with pytest.raises(ConnectError, match="rank 1 could not join: no route"):
        waiting.poll_failure()


def test_ranks_that_do_not_come_are_named() -> None:
    store = dist.HashStore()
    with pytest.raises(ConnectError, match=r"timed out after 0.2 s: ranks 1, 2 have not come, of 3"):
        steps(store, 0, 3, timedelta(seconds=0.2)).gather("here")


def at_switch(store: dist.Store, rank: int, options: Options) -> Rendezvous:
    """A rank of two that has met the other one, and needs a switch."""
    met = Rendezvous(store, rank, 2, "g", options, ONE_HOUR)
    met.find_switch()
    return met


@pytest.mark.parametrize(
    ("listen", "reached"), [("0.0.0.0", "127.0.0.1"), ("127.0.0.2", "127.0.0.2"), (None, "127.0.0.1")]
)
def test_a_switch_is_published_where_others_reach_it(
    monkeypatch: pytest.MonkeyPatch, listen: str | None, reached: str
) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    store = dist.HashStore()
    met = together(2, lambda rank: at_switch(store, rank, Options(listen=listen)))
    try:
        assert [addresses.host_of(one.meeting.switches[0]) for one in met] == [reached] * 2
    finally:
        together(2, lambda rank: met[rank].leave(orderly=True))


def test_where_to_listen_needs_no_search_for_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "no.such.host.invalid")
    store = dist.HashStore()
    met = together(2, lambda rank: at_switch(store, rank, Options(listen="127.0.0.1")))
    together(2, lambda rank: met[rank].leave(orderly=True))
    assert met[0].meeting.switches == met[1].meeting.switches


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch) -> threading.local:
    """Each thread with an attribute `network` is in a network of that name."""
    here = threading.local()
    monkeypatch.setattr(addresses, "own_network", lambda: getattr(here, "network", "one"))
    return here


def test_ranks_of_one_host_meet_at_the_address_that_leads_to_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    store = dist.HashStore()
    met = together(2, lambda rank: at_switch(store, rank, Options()))
    try:
        assert met[0].meeting.switches == met[1].meeting.switches
        assert met[0].meeting.switches[0].startswith("127.0.0.1:")
        assert [one.meeting.address for one in met] == ["127.0.0.1"] * 2
    finally:
        together(2, lambda rank: met[rank].leave(orderly=True))


def test_a_loopback_address_is_refused_if_a_rank_is_elsewhere_and_all_ranks_learn_it(
    monkeypatch: pytest.MonkeyPatch, networks: threading.local
) -> None:
    # On the way to every host is a loopback address, as on a host without a network.
    monkeypatch.setattr(addresses, "source_towards", lambda host: "127.0.0.1")
    monkeypatch.setenv("MASTER_ADDR", "node-0")
    store = dist.HashStore()

    def meet(rank: int) -> Rendezvous:
        networks.network = f"network {rank}"
        return Rendezvous(store, rank, 3, "g", Options(), ONE_HOUR)

    outcomes = together(3, meet)
    assert all(isinstance(outcome, ConnectError) for outcome in outcomes)
    assert all("an address of this host that other hosts reach" in str(outcome) for outcome in outcomes)


def test_rank_0_listens_where_the_way_to_a_rank_elsewhere_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    # As on Debian, whose hosts call themselves 127.0.1.1: only the other rank's address leads out.
    ways = {"node-0": "127.0.1.1", "10.66.0.2": "127.0.0.2"}
    monkeypatch.setattr(addresses, "source_towards", lambda host: ways.get(host, host))
    monkeypatch.setattr(addresses, "is_loopback", lambda address: address == "127.0.1.1")
    assert addresses.address_towards(["node-0"], is_spread=False) == "127.0.1.1"
    assert addresses.address_towards(["node-0", "10.66.0.2"], is_spread=True) == "127.0.0.2"


@pytest.mark.parametrize(
    ("address", "host", "listen"),
    [
        ("10.0.0.1:17777", "10.0.0.1", "10.0.0.1:17777"),
        ("10.0.0.1", "10.0.0.1", "10.0.0.1:0"),
        ("[fd00::1]:17777", "fd00::1", "[fd00::1]:17777"),
        ("fd00::1", "fd00::1", "[fd00::1]:0"),
        ("node-1:17777", "node-1", "node-1:17777"),
    ],
)
def test_hosts_and_ports_of_addresses(address: str, host: str, listen: str) -> None:
    assert addresses.host_of(address) == host
    assert addresses.with_port(address) == listen


def test_a_rank_whose_options_are_wrong_fails_all_ranks() -> None:
    for wrong in (0, 1):
        store = dist.HashStore()

        def meet(rank: int, store: dist.Store = store, wrong: int = wrong) -> Rendezvous | None:
            if rank == wrong:
                rendezvous.refuse(store, rank, 2, ValueError("TRIBUTARY_X is unknown"))
                return None
            return Rendezvous(store, rank, 2, "g", Options(switch="10.0.0.1:1"), ONE_HOUR)

        other = together(2, meet)[1 - wrong]
        assert str(other) == f"rank {wrong} could not join: TRIBUTARY_X is unknown"


def test_a_rank_that_reaches_no_switch_fails_all_ranks_at_once(ranks: Ranks, daemon: Daemon, tmp_path: Path) -> None:
    sentences = ranks(torch_rank_joining.one_without_a_switch, 3, str(tmp_path / "meet"), daemon.address)
    assert "nothing listens" in sentences[2]
    assert sentences[0] == sentences[1] == f"rank 2 could not join: {sentences[2]}"


def test_who_names_a_parameter_server_learns_to_name_its_switch(ranks: Ranks, tmp_path: Path) -> None:
    daemon = Daemon()
    server = offer(daemon)
    try:
        both = f"{daemon.address},{ready(server)}"
        sentences = ranks(torch_rank_joining.unlike_switches, 2, str(tmp_path / "meet"), [both] * 2, 30.0)
    finally:
        server.kill()
        finish(server)
        daemon.stop()
    for sentence in sentences:
        assert sentence.endswith("name the switch to which it offers itself, and it takes a share of large sums")


@pytest.fixture
def leaves() -> Iterator[list[str]]:
    """Two switches below a third one."""
    top = Daemon()
    below = [Daemon("--parent", top.address) for _ in range(2)]
    yield [leaf.address for leaf in below]
    for daemon in (*below, top):
        daemon.stop()


@pytest.mark.parametrize("protocol", ["auto", *IN_LEVELS])
def test_a_rank_joins_the_switch_that_it_names(ranks: Ranks, leaves: list[str], tmp_path: Path, protocol: str) -> None:
    assert ranks(torch_rank_joining.racks, 4, str(tmp_path / "meet"), leaves, protocol) == [10.0] * 4
    for leaf in leaves:
        [shard] = last_json(run("status", "--switch", leaf, "--json"))["switch"]["shards"]
        assert shard["rx_bytes"] > 2 * 400_000, "the leaf has seen the tensors of its two ranks"


def test_ranks_that_name_switches_of_no_tree_learn_that(ranks: Ranks, tmp_path: Path) -> None:
    unrelated = [Daemon(), Daemon()]
    addresses = [daemon.address for daemon in unrelated]
    sentences = ranks(torch_rank_joining.unlike_switches, 2, str(tmp_path / "meet"), addresses, 3.0)
    for daemon in unrelated:
        daemon.stop()
    for sentence in sentences:
        assert f"rank 0 names {addresses[0]} and rank 1 {addresses[1]}" in sentence
        assert "--parent" in sentence


def test_a_rank_that_names_no_switch_takes_rank_0s() -> None:
    assert rendezvous.of_all_ranks([["a:1", "b:1"], [], ["c:1", "d:1"]]) == [
        ["a:1", "b:1"],
        ["a:1", "b:1"],
        ["c:1", "d:1"],
    ]
    assert rendezvous.of_all_ranks([[], []]) == []


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ([["a:1"], ["b:1", "c:1"]], r"rank 0 names 1 switch \(a:1\) and rank 1 2 switches \(b:1,c:1\)"),
        ([[], [], ["b:1"]], "rank 2 names the switch b:1 and rank 0 none: set TRIBUTARY_SWITCH on every rank"),
    ],
)
def test_a_switch_that_is_named_is_never_ignored(named: list[list[str]], sentence: str) -> None:
    with pytest.raises(ConnectError, match=sentence):
        rendezvous.of_all_ranks(named)


#: Two hosts whose own names are loopback, as Debian installs them; on each a rank sums and gathers.
TWO_HOSTS = """
set -e
trap 'for i in 0 1; do ip netns del $NAME-$i; done' EXIT
for i in 0 1; do ip netns add $NAME-$i; ip -n $NAME-$i link set lo up; done
ip -n $NAME-0 link add e0 type veth peer name e0 netns $NAME-1
for i in 0 1; do
    ip -n $NAME-$i address add 10.66.0.$((i + 1))/24 dev e0
    ip -n $NAME-$i link set e0 up
    printf "127.0.0.1 localhost\\n127.0.1.1 node-$i\\n10.66.0.$((2 - i)) node-$((1 - i))\\n" > $FOLDER/hosts-$i
done
for i in 0 1; do
    ip netns exec $NAME-$i unshare --uts bash -c "mount --bind $FOLDER/hosts-$i /etc/hosts; hostname node-$i; \
        RANK=$i WORLD_SIZE=2 MASTER_ADDR=$MASTER MASTER_PORT=29500 exec $PYTHON -c '$RANK_PROGRAM'" &
    ranks="$ranks $!"
done
for rank in $ranks; do wait $rank; done
"""

RANK_PROGRAM = """
import torch
import torch.distributed as dist
dist.init_process_group("tributary")
tensor = torch.full((1000,), dist.get_rank() + 1.0)
gathered = [torch.zeros(1000) for _ in range(2)]
dist.all_gather(gathered, tensor)
dist.all_reduce(tensor)
assert [one[0].item() for one in gathered] == [1.0, 2.0]
assert tensor.tolist() == [3.0] * 1000
dist.destroy_process_group()
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and iproute2")
@pytest.mark.parametrize("master", ["node-0", "10.66.0.1"])
def test_hosts_whose_own_names_are_loopback_train_together(master: str, tmp_path: Path) -> None:
    settings = {
        "NAME": f"own-name-{os.getpid()}",
        "FOLDER": str(tmp_path),
        "MASTER": master,
        "PYTHON": sys.executable,
        "RANK_PROGRAM": RANK_PROGRAM,
    }
    command = ["bash", "-c", TWO_HOSTS]
    done = subprocess.run(command, env=ENVIRONMENT | settings, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_group_that_is_split_sums_in_each_subgroup_in_the_given_order(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks(torch_rank_joining.split, 4, str(tmp_path / "meet")) == [
        [2.0, 1.0],
        [4.0, 0.0],
        [2.0, 0.0],
        [4.0, 1.0],
    ]


def test_options_of_another_backend_are_refused_with_the_name_of_ours(ranks: Ranks, tmp_path: Path) -> None:
    for sentence in ranks(torch_rank_joining.options_of_gloo, 2, str(tmp_path / "meet")):
        assert "are tributary.torch.Options, not ProcessGroupGloo._Options" in sentence
