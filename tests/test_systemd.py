"""The unit of ``deploy/`` under a systemd that is process 1, installed as its page says: what both promise."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import program
import systemd_machine
from systemd_machine import MOUNTS, PYTHON, CannotBootError, Machine
from tributary import _core

PAGE = systemd_machine.SOURCE / "deploy" / "README.md"
SETTINGS = (systemd_machine.SOURCE / "docs" / "switch.toml").read_text()
UNIT = "tributary-switch"
FILE = "/etc/tributary/switch.toml"
FLAGS = "/etc/tributary/switch.env"
DROP_IN = f"/etc/systemd/system/{UNIT}.service.d/test.conf"
SWITCH = "127.0.0.1:17777"
#: The exit code of settings that a person has to mend.
WRONG_SETTINGS = "2"
MAX_MEMORY = 1 << 30
#: In place of the unit's half minute; a busy machine may delay a switch for seconds.
WATCHDOG_S = 5

reason = systemd_machine.why_not()
pytestmark = pytest.mark.skipif(reason is not None, reason=reason or "")


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine on which a new operator has typed the commands of the page."""
    try:
        machine = Machine(tmp_path_factory.mktemp("systemd"))
    except CannotBootError as error:
        pytest.skip(f"no systemd can be booted here: {error}")
    try:
        machine.write("/usr/local/bin/tributary", systemd_machine.PROGRAM)
        machine.run("chmod", "755", "/usr/local/bin/tributary")
        block = re.search(r"## Under systemd\n\n```\n(.*?)```", PAGE.read_text(), re.DOTALL)
        assert block is not None
        commands = [line for line in block[1].splitlines() if "dist/tributary" not in line]
        assert len(commands) == 7, commands
        # What counts is the last one, which starts the switch: sysctl may not set everything in a namespace.
        machine.run("bash", "-c", "\n".join(commands))
        yield machine
    finally:
        machine.stop()


@pytest.fixture
def machine(booted: Machine) -> Machine:
    """The machine, with a running switch and the settings of the page."""
    booted.write(FILE, SETTINGS)
    booted.run("rm", "-rf", FLAGS, DROP_IN.rpartition("/")[0])
    booted.run("systemctl", "daemon-reload")
    booted.run("systemctl", "reset-failed")
    booted.run("systemctl", "restart", UNIT)
    return booted


def change(machine: Machine, old: str, new: str) -> None:
    """Write the settings with one line in place of another."""
    assert old in SETTINGS
    machine.write(FILE, SETTINGS.replace(old, new))


def has_drop_in(machine: Machine, *lines: str) -> None:
    """Start the switch again with lines that the unit gets."""
    machine.write(DROP_IN, "\n".join(["[Service]", *lines, ""]))
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", UNIT)


def shown(machine: Machine, name: str) -> str:
    """Give what systemd says of the unit under a name."""
    return machine.run("systemctl", "show", "--property", name, "--value", UNIT).stdout.strip()


def send(machine: Machine, signal: str) -> None:
    """Send the switch a signal, as the page says."""
    machine.run("systemctl", "kill", "--kill-who=main", f"--signal={signal}", UNIT)


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition."""
    end = time.monotonic() + systemd_machine.PATIENCE_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def journal(machine: Machine, priority: str = "debug") -> str:
    """Give the unit's lines of the journal since the switch last started, of this priority or a graver one."""
    invocation = shown(machine, "InvocationID")
    machine.run("journalctl", "--sync")
    of_unit = [f"--priority={priority}", f"_SYSTEMD_INVOCATION_ID={invocation}"]
    return machine.run("journalctl", "--quiet", "--output=cat", *of_unit).stdout


def ask(machine: Machine, path: str) -> dict[str, Any]:
    """Ask the switch."""
    answer = machine.run("curl", "--silent", "--fail", f"http://{SWITCH}{path}", stderr=subprocess.DEVNULL)
    value: dict[str, Any] = json.loads(answer.stdout)
    return value


def run_ranks(machine: Machine, job: str, *flags: str) -> list[str]:
    """Let two ranks sum once; give what they print."""
    words = ["tributary", "allreduce", "--switch", SWITCH, "--job", job, "--world-size", "2", *flags]
    ranks = [machine.start(*words, "--elements", "100000", "--rank", str(number)) for number in range(2)]
    return [program.finish(rank).stdout for rank in ranks]


class Job:
    """Two ranks in the machine that sum without a pause."""

    def __init__(self, machine: Machine, name: str) -> None:
        """Start them, and wait until they sum."""
        self._folder = machine.shared / name
        self._folder.mkdir()
        code = (
            f"import sys; sys.path.insert(0, '{MOUNTS}/source/tests/programs'); import rank_upgrade; "
            f"rank_upgrade.sum_until(int(sys.argv[1]), 2, '{SWITCH}', '{name}', '{MOUNTS}/shared/{name}')"
        )
        self.ranks = [machine.start(PYTHON, "-c", code, str(number)) for number in range(2)]
        self.goes_on()

    def sums(self) -> int:
        """Give the fewest sums that a rank has."""
        files = [self._folder / f"sums{number}" for number in range(2)]
        return min(int(file.read_text() or 0) if file.exists() else 0 for file in files)

    def goes_on(self) -> None:
        """Wait until both ranks have ten sums more."""
        before = self.sums()
        until(lambda: self.sums() >= before + 10, "the ranks sum no more")

    def output(self) -> list[str]:
        """Wait for the ranks' ends; give what they print."""
        return [program.finish(rank).stdout for rank in self.ranks]

    def ends_well(self) -> None:
        """Let both ranks end after the same sum."""
        (self._folder / "over").touch()
        assert self.output() == ["", ""]
        assert [rank.returncode for rank in self.ranks] == [0, 0]


def test_the_page_s_commands_install_a_switch_that_sums_as_soon_as_it_is_started(booted: Machine) -> None:
    assert booted.run("systemctl", "is-enabled", UNIT).stdout == "enabled\n"
    booted.run("systemctl", "restart", UNIT)
    status = ask(booted, "/switch")
    assert status["memory_bytes"] == 512 << 20
    for rank in run_ranks(booted, "first"):
        assert "right on this rank" in rank
    assert (shown(booted, "ActiveState"), shown(booted, "NRestarts")) == ("active", "0")
    assert journal(booted, "notice") == ""
    lines = journal(booted)
    assert "job formed job=first" in lines
    for denied in ("Operation not permitted", "Permission denied", " WARN ", " ERROR "):
        assert denied not in lines
    owner = booted.run("stat", "--format=%U", f"/proc/{shown(booted, 'MainPID')}").stdout
    assert owner == "tributary\n"


def test_a_reload_changes_the_settings_under_a_running_job_and_a_wrong_file_changes_nothing(machine: Machine) -> None:
    job, pid = Job(machine, "reloaded"), shown(machine, "MainPID")
    change(machine, "max_jobs = 256", "max_jobs = 7")
    machine.run("systemctl", "reload", UNIT)
    until(lambda: ask(machine, "/switch")["max_jobs"] == 7, "the setting is not taken over")
    machine.write(FILE, "max_jbos = 8\n")
    assert machine.run("systemctl", "reload", UNIT, check=False).returncode != 0
    assert "unknown field `max_jbos`" in journal(machine, "err")
    assert (shown(machine, "ActiveState"), shown(machine, "MainPID")) == ("active", pid)
    assert ask(machine, "/switch")["max_jobs"] == 7
    job.goes_on()
    job.ends_well()


def test_more_memory_than_the_unit_lets_the_switch_have_is_a_wrong_setting(machine: Machine) -> None:
    assert shown(machine, "MemoryMax") == str(MAX_MEMORY)
    group = f"system.slice/{UNIT}.service"
    files = [f"/sys/fs/cgroup/memory/{group}/memory.limit_in_bytes", f"/sys/fs/cgroup/{group}/memory.max"]
    limits = machine.run("cat", *files, check=False, stderr=subprocess.DEVNULL).stdout
    if not limits:
        pytest.skip("the machine of the test has no control of memory")
    assert int(limits) == MAX_MEMORY
    change(machine, 'memory = "512 MiB"', 'memory = "2 GiB"')
    assert machine.run("systemctl", "reload", UNIT, check=False).returncode != 0
    assert ask(machine, "/switch")["memory_bytes"] == 512 << 20
    assert machine.run("systemctl", "restart", UNIT, check=False).returncode != 0
    assert (shown(machine, "ActiveState"), shown(machine, "ExecMainStatus")) == ("failed", WRONG_SETTINGS)
    assert "memory = 2 GiB: this machine lets the switch have 1 GiB" in journal(machine, "err")


def test_settings_that_a_person_has_to_mend_are_not_tried_again(machine: Machine) -> None:
    has_drop_in(machine, "RestartSec=0")
    machine.write(FILE, "max_jbos = 8\n")
    assert machine.run("systemctl", "restart", UNIT, check=False).returncode != 0
    assert (shown(machine, "ActiveState"), shown(machine, "ExecMainStatus")) == ("failed", WRONG_SETTINGS)
    assert shown(machine, "NRestarts") == "0"


def is_restarted(machine: Machine, count: int) -> bool:
    """Whether the switch runs after this many restarts."""
    return (shown(machine, "NRestarts"), shown(machine, "ActiveState")) == (str(count), "active")


def test_a_switch_that_dies_is_started_again_however_often(machine: Machine) -> None:
    has_drop_in(machine, "RestartSec=0")
    # systemd gives up a service that starts more than five times in ten seconds, unless the unit says otherwise.
    for count in range(1, 8):
        send(machine, "SIGKILL")
        until(partial(is_restarted, machine, count), "it is not started again")
    assert ask(machine, "/switch")["max_jobs"] == 256


def test_the_watchdog_ends_a_switch_that_stands_still(machine: Machine) -> None:
    has_drop_in(machine, f"WatchdogSec={WATCHDOG_S}", "RestartSec=0")
    time.sleep(WATCHDOG_S + 2)
    assert (shown(machine, "ActiveState"), shown(machine, "NRestarts")) == ("active", "0")
    send(machine, "SIGSTOP")
    until(lambda: shown(machine, "NRestarts") == "1", "nobody notices")
    until(lambda: shown(machine, "ActiveState") == "active", "it does not start")
    assert (
        f"Watchdog timeout (limit {WATCHDOG_S}s)!" in machine.run("journalctl", "--output=cat", f"--unit={UNIT}").stdout
    )


def test_a_new_program_becomes_the_service_and_a_job_lives_on(machine: Machine) -> None:
    job, earlier = Job(machine, "handed-over"), shown(machine, "MainPID")
    send(machine, "SIGUSR2")
    until(lambda: shown(machine, "MainPID") != earlier, "systemd does not follow")
    for rank in run_ranks(machine, "at-the-new-one"):
        assert "right on this rank" in rank
    change(machine, "max_jobs = 256", "max_jobs = 7")
    machine.run("systemctl", "reload", UNIT)
    until(lambda: ask(machine, "/switch")["max_jobs"] == 7, "a reload does not reach the new program")
    job.ends_well()
    until(lambda: "the earlier program has ended" in journal(machine), "the earlier program stays")
    assert (shown(machine, "ActiveState"), shown(machine, "NRestarts")) == ("active", "0")


def test_when_the_new_program_dies_the_running_one_is_the_service_again(machine: Machine) -> None:
    has_drop_in(machine, f"WatchdogSec={WATCHDOG_S}")
    job, earlier = Job(machine, "taken-back"), shown(machine, "MainPID")
    send(machine, "SIGUSR2")
    until(lambda: shown(machine, "MainPID") != earlier, "systemd does not follow")
    send(machine, "SIGKILL")
    until(lambda: shown(machine, "MainPID") == earlier, "systemd waits for a process that is gone")
    time.sleep(WATCHDOG_S + 2)
    job.goes_on()
    assert (shown(machine, "ActiveState"), shown(machine, "NRestarts")) == ("active", "0")
    job.ends_well()


def test_operators_of_jobs_need_the_drop_in_and_the_refusal_names_it(machine: Machine) -> None:
    machine.write(FLAGS, "TRIBUTARY_SWITCH_FLAGS=--operators any\n")
    machine.run("systemctl", "restart", UNIT)
    machine.write("/tmp/larger.expr", "# element: v:f32\nv = max(a.v, b.v)\n")
    protocol = next(protocol for protocol in _core.protocols() if _core.takes_operators(protocol))
    flags = ["--protocol", protocol, "--op", "/tmp/larger.expr"]
    for rank in run_ranks(machine, "refused", *flags):
        assert "MemoryDenyWriteExecute" in rank
        assert "operators.conf" in rank
    (command,) = [
        line.lstrip("# ")
        for line in (systemd_machine.SOURCE / "deploy" / "operators.conf").read_text().splitlines()
        if "install" in line
    ]
    machine.run("bash", "-c", command)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", UNIT)
    for rank in run_ranks(machine, "served", *flags):
        assert "as the same module gives on one machine" in rank


def test_a_stop_ends_after_finish_and_ranks_learn_why(machine: Machine) -> None:
    change(machine, 'finish = "10 s"', 'finish = "1 s"')
    machine.run("systemctl", "restart", UNIT)
    job = Job(machine, "stopped")
    machine.run("systemctl", "stop", UNIT)
    assert (shown(machine, "ActiveState"), shown(machine, "Result")) == ("inactive", "success")
    for rank in job.output():
        assert "is stopping, as its operator has asked it to" in rank


def test_the_journal_has_objects_if_the_environment_says_so(machine: Machine) -> None:
    machine.write(FLAGS, "TRIBUTARY_LOG=debug\nTRIBUTARY_LOG_FORMAT=json\n")
    machine.run("systemctl", "restart", UNIT)
    run_ranks(machine, "logged")
    objects = [json.loads(line) for line in journal(machine).splitlines() if line.startswith("{")]
    assert {"job formed", "join"} <= {entry["message"] for entry in objects}
    assert {entry["level"] for entry in objects} >= {"INFO", "DEBUG"}
