"""The PyTorch backend under Canary, over a fabric of switches in network namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

from program import ENVIRONMENT, PROGRAM
from tributary.torch import Options

HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "examples" / "fabric.toml"

#: Two ranks behind each leaf. Gloo needs a network on which hosts reach each other, which the fabric is not: a bridge,
#: whose links end with the namespaces.
SCRIPT = """
set -e
ip -n $NS_control link add gloo type bridge
ip -n $NS_control link set gloo up
start() {
    ip -n $NS_control link add gloo$1 type veth peer name gloo netns $2
    ip -n $NS_control link set gloo$1 master gloo up
    ip -n $2 address add 10.78.0.$((1 + $1))/24 dev gloo
    ip -n $2 link set gloo up
    ip netns exec $2 env RANK=$1 WORLD_SIZE=4 TRIBUTARY_PROTOCOL=canary TRIBUTARY_SWITCH=$3 GLOO_SOCKET_IFNAME=gloo \
        MASTER_ADDR=10.78.0.1 $PYTHON $RANK_PROGRAM &
    ranks="$ranks $!"
}
start 0 $NS_host0 10.77.128.1
start 1 $NS_host1 10.77.128.1
start 2 $NS_host4 10.77.128.2
start 3 $NS_host5 10.77.128.2
for rank in $ranks; do wait $rank; done
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("nft") is None,
    reason="network namespaces need root, iproute2 and nftables",
)
def test_every_operation_goes_over_a_fabric(tmp_path: Path) -> None:
    settings = {
        "PYTHON": sys.executable,
        "RANK_PROGRAM": str(HERE / "programs" / "torch_rank_fabric.py"),
        "MEET": str(tmp_path / "meet"),
    }
    command = [PROGRAM, "lab", "fabric", str(EXAMPLE), "--run", SCRIPT]
    done = subprocess.run(command, env=ENVIRONMENT | settings, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(line.split(":")[0] for line in done.stdout.splitlines() if line.startswith("rank")) == [
        f"rank {rank} is right" for rank in range(4)
    ], done.stdout + done.stderr


@pytest.mark.parametrize("name", ["Canary", "gloo", ""])
def test_a_protocol_that_there_is_not_is_refused_with_those_that_there_are(name: str) -> None:
    with pytest.raises(ValueError, match=rf"TRIBUTARY_PROTOCOL is [\w-]+( or [\w-]+)+, not '{name}'"):
        Options(protocol=name)


def test_canary_needs_no_fabric() -> None:
    assert Options.from_environment({"TRIBUTARY_PROTOCOL": "canary"}).switch is None
