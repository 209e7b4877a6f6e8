"""Every command that the documentation shows: it runs, or the reason why it does not is here.

The commands of a block are one session, in a folder with the repository's files and in a network namespace of its own,
whose loopback interface has all the addresses that the pages name. Daemons run until the session's end. A worker is
started once for each rank of its world_size.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import program

REPO = Path(__file__).parent.parent
PAGES = ["README.md", "CONTRIBUTING.md", "deploy/README.md", "crates/explore/README.md", "experiments/soak/README.md"]
FENCES = {"", "sh", "bash", "console"}

#: What a command's first word may be; a line of a block without one is output.
PROGRAMS = {
    "tributary", "make", "curl", "source", "promtool", "prometheus", "install", "systemctl", "systemd-sysusers",
    "buildah", "podman", "openssl", "dask", "tshark", "torchrun", "torchfrtrace", "cargo", "python", "pip",
    "scripts/without-protocol",
}  # fmt: skip

#: Commands that are not run, by patterns of how they begin, and why not.
NOT_RUN = {
    "tributary operator (new|build|check|bench)": "a test of its own types docs/operators.md word by word",
    r"tributary switch --operators any": "a test of its own types docs/operators.md word by word",
    r"tributary allreduce .*--op loudest.expr": "a test of its own types docs/operators.md word by word",
    "tributary sim run loudest.toml": "a test of its own types docs/operators.md word by word",
    "tributary operator cycles": "needs wasm2c and a compiler; dataplanes/pspin/tests/operator_cycles.rs counts",
    "make ": "a target that other tests run, or that runs all tests; that there is such a target is checked",
    "source ": "the tests run inside of .venv",
    "cargo test": "make test runs all of cargo's tests",
    "cargo run": "compiles the simulator; make test compiles its examples",
    "install ": "tests/test_service.py checks the files; installing them would change this machine",
    "systemd-sysusers": "would make a user of this machine",
    "systemctl ": "the service needs systemd as the first process",
    "buildah ": "needs an image store, and root in a user namespace",
    "podman ": "needs the image that buildah has made",
    "dask ": "tests/test_sim_cluster.py runs a sweep on a cluster",
    "torchrun ": "tests/test_torch_training.py runs the examples, where PyTorch can be installed",
    "torchfrtrace ": "tests/test_torch_flight.py runs it on the files of real ranks",
    "python examples/elastic.py": "tests/test_torch_elastic.py runs it, where PyTorch can be installed",
    "TRIBUTARY_TOKEN=": "tests/test_service.py joins with tokens",
    "tributary switch --tokens": "tests/test_service.py starts a switch with a file of tokens of its own",
    r"tributary sim sweep \S+ --on": "needs dask's scheduler: tests/test_sim_cluster.py has one",
    "tributary lab fabric fabric.toml": "the file is the reader's own",
    r"tributary lab fabric examples/fabric[\w-]*\.toml": "crates/cli/tests/namespaces runs fabrics",
    "tributary lab fair": "crates/cli/tests/namespaces runs it, shorter",
    r"tributary reproduce \S+ --vary": "takes minutes; the same without --vary is run",
    r"tributary reproduce \S+ --seeds 1 --set": "takes minutes; another is run with --set",
    r"tributary reproduce \S+ --full": "takes hours; others are run with small inputs",
    r"tributary reproduce \w+-\w+ \w+-\w+": "takes an hour; crates/papers/tests/reproduce.rs runs each, shorter",
    "tributary reproduce all": "takes minutes; crates/papers/tests/reproduce.rs runs them all",
}

#: What is replaced in commands that take too long, and by what.
SHORTER = {
    r"(explore --protocol \w+) --timeouts 2": r"\1",
    r"--blocks 3 --losses 1 --duplicates 1": "--blocks 2",
    r"swarm --seeds 0\.\.\d+": "swarm --seeds 0..3",
    r"(reproduce \w+-\w+) --seeds 5": r"\1 --seeds 1",
    r"reproduce (\w+-\w+)\b(?! --quick)": r"reproduce \1 --quick",
    r"(plan --hosts \d+)": r"\1 --scale 200",
    r"sweep experiments/sweep-trees.toml --out": "sweep docs/first-sweep.toml --out",
}

#: A sweep of a moment, in place of one of minutes.
SWEEP = """[network]
star = { hosts = 3 }
[[job]]
protocol = "ring"
tensor = "10 kB"
[sweep]
seeds = [1, 2]
"""


def serves(command: str) -> bool:
    """Whether a command serves until it is stopped: the program says so of its own."""
    own = re.findall(r"^  (\w+) .*until SIGTERM", program.run("--help").stdout, re.MULTILINE)
    return command.startswith(("prometheus ", *(f"tributary {name}" for name in own)))


def commands(block: str) -> list[str]:
    """The commands of a block: without prompts, comments, and what an aligned column says of them."""
    lines = re.sub(r" *\\\n *", " ", block).splitlines()
    # Where there are prompts, the rest is output.
    prompted = [line for line in lines if line.startswith("$ ")]
    found = []
    for line in prompted or lines:
        command = re.split(r"\s+#|\s{3,}(?=\S)", line.removeprefix("$ ").strip())[0]
        first = command.split(" ")[0]
        if first in PROGRAMS or first.startswith("TRIBUTARY_"):
            found.append(re.sub(r"\s+", " ", command))
    return found


def sessions() -> Iterator[tuple[str, list[str]]]:
    """Every block with commands, by page and number."""
    pages = [REPO / page for page in PAGES] + sorted((REPO / "docs").rglob("*.md"))
    pages += sorted((REPO / "crates/papers").rglob("*.md"))
    for page in pages:
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        found = [commands(block) for language, block in blocks if language in FENCES]
        for number, session in enumerate(filter(None, found)):
            yield f"{page.relative_to(REPO)}-{number}", session


SESSIONS = dict(sessions())

#: Commands whose sample outputs are not compared, and why not.
NOT_COMPARED = {
    "torchrun ": "tests/test_torch_training.py reads what the example prints, where PyTorch can be installed",
    "python examples/elastic.py": "tests/test_torch_elastic.py reads it, where PyTorch can be installed",
}

#: What differs between two runs of a command: how fast the machine was.
MEASURED = r"^[\d.]+ M packet-hops/s: (\d+) hops in .*$"


def samples() -> Iterator[tuple[str, str, list[str]]]:
    """Every block that shows a command after a prompt and what it prints: page, command, lines."""
    for page in sorted([*REPO.glob("*.md"), *(REPO / "docs").rglob("*.md"), *(REPO / "crates/papers").rglob("*.md")]):
        for block in re.findall(r"^```\w*\n(\$ .*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            command, *lines = block.splitlines()
            if lines:
                yield str(page.relative_to(REPO)), command.removeprefix("$ "), lines


@pytest.mark.parametrize(("page", "command", "shown"), list(samples()))
def test_a_sample_output_is_what_the_command_prints(page: str, command: str, shown: list[str]) -> None:
    reasons = [why for begin, why in NOT_COMPARED.items() if command.startswith(begin)]
    if reasons:
        pytest.skip(reasons[0])
    name, *words = shlex.split(command)
    assert name == "tributary", f"{page} shows what {name} prints, and no test compares it"
    run = subprocess.run(
        [program.PROGRAM, *words], cwd=REPO, env=program.ENVIRONMENT, capture_output=True, text=True, timeout=240
    )
    assert run.returncode == 0, run.stderr
    printed = run.stdout.splitlines()
    assert [re.sub(MEASURED, r"\1", line) for line in shown] == [re.sub(MEASURED, r"\1", line) for line in printed]


def claims() -> list[str]:
    """The commands that docs/artifact.md gives for claims."""
    text = (REPO / "docs/artifact.md").read_text()
    return re.findall(r"^\| [^|]* \| `(tributary [^`]*)`", text, re.MULTILINE)


@pytest.mark.parametrize("command", claims())
def test_the_command_of_a_claim_runs(command: str) -> None:
    if why := why_not(command):
        pytest.skip(why)
    _, *words = shlex.split(shortened(command))
    run = subprocess.run(
        [program.PROGRAM, *words], cwd=REPO, env=program.ENVIRONMENT, capture_output=True, text=True, timeout=240
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_simulators_first_sample_is_compared() -> None:
    assert any(page.startswith("docs/simulator") for page, *_ in samples())


def why_not(command: str) -> str | None:
    """Why a command is not run."""
    return next((why for begin, why in NOT_RUN.items() if re.match(begin, command)), None)


def shortened(command: str) -> str:
    """What is run in a command's place."""
    for long, short in SHORTER.items():
        command = re.sub(long, short, command)
    return command


class Stage:
    """A namespace and a folder for one session."""

    def __init__(self, folder: Path, name: str, hosts: set[str]) -> None:
        """Make them."""
        self.folder, self.name = folder, name
        self.daemons: list[subprocess.Popen[str]] = []
        self.ip("netns", "add", name)
        self.ip("-n", name, "link", "set", "lo", "up")
        for host in sorted(hosts):
            self.ip("-n", name, "address", "add", f"{host}/32", "dev", "lo")
        for name in ("experiments", "docs", "deploy", "examples"):
            shutil.copytree(REPO / name, folder / name)
        (folder / "docs/first-sweep.toml").write_text(SWEEP)

    @staticmethod
    def ip(*words: str) -> None:
        """Run iproute2's program."""
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def start(self, command: str) -> subprocess.Popen[str]:
        """Start a command inside."""
        words = [sys.executable if word == "python" else word for word in shlex.split(command)]
        path = f"{Path(program.PROGRAM).parent}:{os.environ['PATH']}"
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, *words],
            cwd=self.folder, env={**program.ENVIRONMENT, "PATH": path, "TRIBUTARY_LOG": "warn"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def serve(self, command: str) -> None:
        """Start a daemon, and wait until it says that it is ready."""
        daemon = self.start(command)
        assert daemon.stdout is not None
        line = daemon.stdout.readline()
        assert daemon.poll() is None, line + daemon.stdout.read()
        self.daemons.append(daemon)

    def run(self, command: str) -> None:
        """Run a command to its end, a worker once for each rank."""
        world_size = re.search(r"--world-size (\d+)", command)
        ranks = range(int(world_size[1])) if world_size else range(1)
        running = [self.start(re.sub(r"--rank \d+", f"--rank {rank}", command)) for rank in ranks]
        for process in running:
            out, _ = process.communicate(timeout=240)
            assert process.returncode == 0, f"{command}\n{out}"

    def close(self) -> None:
        """End what runs, and take the namespace away."""
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            daemon.communicate(timeout=240)
        self.ip("netns", "del", self.name)


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.parametrize("name", SESSIONS)
def test_what_a_page_shows_runs(name: str, tmp_path: Path) -> None:
    session = [shortened(command) for command in SESSIONS[name] if why_not(command) is None]
    if not session:
        reasons = sorted({why_not(command) or "" for command in SESSIONS[name]})
        pytest.skip("; ".join(reasons))
    for command in session:
        tool = command.split(" ")[0]
        if tool != "tributary" and shutil.which(tool) is None:
            pytest.skip(f"{tool} is missing: make test installs it as root")
    hosts = set(re.findall(r"\b10\.\d+\.\d+\.\d+", " ".join(session)))
    stage = Stage(tmp_path, f"trib-docs-{os.getpid()}", hosts)
    try:
        if "10.0.0.1" in hosts and not any(command.startswith("tributary switch") for command in session):
            stage.serve("tributary switch --listen 10.0.0.1:17777")
        if "run.pcapng" in session[0] and session[0].startswith("tshark"):
            stage.run("tributary sim trace experiments/first.toml --packet 'host 0#0' --pcapng run.pcapng")
        for command in session:
            stage.serve(command) if serves(command) else stage.run(command)
    finally:
        stage.close()


def test_every_target_that_a_page_names_is_there() -> None:
    makefile = (REPO / "Makefile").read_text()
    named = {
        command.split(" ")[1] for session in SESSIONS.values() for command in session if command.startswith("make ")
    }
    assert named
    assert not [target for target in named if not re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE)]


def test_every_reason_is_still_needed() -> None:
    shown = [command for session in SESSIONS.values() for command in session]
    for pattern in NOT_RUN:
        assert any(re.match(pattern, command) for command in shown), f"no page shows '{pattern}'"
    for pattern in SHORTER:
        assert any(re.search(pattern, command) for command in shown), f"no page shows '{pattern}'"


def test_the_first_pages_blocks_of_python_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPO)
    for page in ("train", "study"):
        text = (REPO / f"docs/start/{page}.md").read_text()
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            if "torch" not in block:
                exec(block, {})
    assert "999999.0" in capsys.readouterr().out
