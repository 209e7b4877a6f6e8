"""The bench's peer: one rank of Gloo, obeying lines; without PyTorch a sentence."""

import importlib.util
import json
import subprocess
import sys


def test_follows_lines_or_says_how_to_get_pytorch() -> None:
    command = [sys.executable, "-m", "tributary.peers.gloo", "--rank=0", "--world-size=1"]
    command += ["--rendezvous=127.0.0.1:29517", "--interface=lo"]
    orders = "1000 3\n1000 3 0.1\n"
    peer = subprocess.run(command, input=orders, capture_output=True, text=True, timeout=120, check=False)
    if importlib.util.find_spec("torch") is None:
        assert peer.returncode == 3
        assert "pip install 'tributary-ina[torch]'" in peer.stderr
        return
    assert peer.returncode == 0, peer.stderr
    joined, *reports = (json.loads(line) for line in peer.stdout.splitlines())
    assert "torch" in joined
    assert len(reports) == 2
    for report in reports:
        assert report["seconds"] > 0
        assert set(report) == {"seconds", "cpu_seconds", "retransmissions"}
