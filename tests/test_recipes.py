"""The launchers and libraries of docs/recipes.md: its scripts and commands train through the network."""

from __future__ import annotations

import re
import shlex
import socket
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

from torch_program import ROOT, finish, start, torchrun

PAGE = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")
#: The scripts by their headings, the packages that they need, and the arguments of each run.
SCRIPTS = [
    ("accelerate", "accelerate", []),
    ("Hugging Face's Trainer", "transformers", []),
    *[("DeepSpeed", "deepspeed", [stage]) for stage in ("0", "1", "2")],
]
#: Goes before the end of a script.
CHECK = """
from tributary.torch.plugin import groups
print(f"summed {sum(group.stats().network_bytes for group in groups.values())} bytes\\n", end="", flush=True)
"""
END = "dist.destroy_process_group()\n"
#: What the end of the default group says: some of the bytes were summed in the network.
SUMMED = r"rank 0 of 2: in network (?!0\.0%)[\d.]+% of"


def section(heading: str) -> str:
    """What the page says under a heading."""
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize(("heading", "package", "arguments"), SCRIPTS)
def test_a_librarys_script_trains_through_the_network(
    tmp_path: Path, heading: str, package: str, arguments: list[str]
) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    (block,) = re.findall(r"^```python\n(.*?)^```", section(heading), re.MULTILINE | re.DOTALL)
    script = tmp_path / "train.py"
    script.write_text(block.replace(END, "") + CHECK + (END if END in block else ""))
    ran = torchrun(str(script), *arguments, DS_ACCELERATOR="cpu")
    assert ran.returncode == 0, ran.stderr
    summed = re.findall(r"^summed (\d+) bytes$", ran.stdout, re.MULTILINE)
    assert len(summed) == 2, ran.stdout
    assert all(int(count) > 0 for count in summed)


def test_every_script_of_the_page_is_run() -> None:
    assert PAGE.count("```python") == len({heading for heading, *_ in SCRIPTS})


def test_torchrun_of_two_hosts_is_one_job() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed; `make test-torch` installs it")
    _, several = re.findall(r"^torchrun (.*)$", section("torchrun"), re.MULTILINE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = shlex.split(several.replace("10.0.0.1:29500", f"127.0.0.1:{port}"))
    arguments = [*words[: words.index("--nproc-per-node")], *words[words.index("--nproc-per-node") + 2 :]]
    hosts = [start(*arguments, "--epochs", "1", processes=1) for _ in range(2)]
    for ran in [finish(host) for host in hosts]:
        assert ran.returncode == 0, ran.stderr
        if "rank 0 of" in ran.stderr:
            assert re.search(SUMMED, ran.stderr), ran.stderr
            assert "all 2 ranks hold the same parameters" in ran.stdout
            break
    else:
        raise AssertionError("no host has rank 0")
