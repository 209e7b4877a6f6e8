"""What ``deploy/`` promises: the unit, what a service may do, and what its signals do."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import program
from program import Daemon

DEPLOY = Path(__file__).parent.parent / "deploy"
UNIT = DEPLOY / "tributary-switch.service"
TENANT = '[[tenant]]\nname = "{name}"\ntoken = "{token}"\n'

#: One switch and its host.
FABRIC = """secret = "0123456789abcdef"
controller = "leaf"
network = "{network}"
port = {port}
[graph]
hosts = ["here"]
switches = ["leaf"]
links = [["here", "leaf"]]
"""

#: Runs a program under the kernel's own MemoryDenyWriteExecute: prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN).
UNKNOWN_TO_THE_KERNEL = 77
WITHOUT_EXECUTABLE_MEMORY = f"""import ctypes, os, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) != 0:
    sys.exit({UNKNOWN_TO_THE_KERNEL})
os.execv(sys.argv[1], sys.argv[1:])
"""

#: `systemd-analyze security` rates what a service may do from 0 to 10.
MOST_EXPOSED = 2.0


def systemd_analyze(*words: str) -> subprocess.CompletedProcess[str]:
    """Run systemd's own judge of units."""
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is missing: apt-get install systemd")
    return subprocess.run([tool, *words], capture_output=True, text=True, check=False)


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/local/bin/tributary", program.PROGRAM))
    result = systemd_analyze("verify", str(unit))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_the_service_may_do_little() -> None:
    result = systemd_analyze("security", "--offline=true", str(UNIT))
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", result.stdout)
    assert exposure is not None, result.stderr
    assert float(exposure[1]) <= MOST_EXPOSED


def test_the_unit_waits_until_the_switch_is_ready_and_a_reload_of_a_wrong_file_fails() -> None:
    unit = UNIT.read_text()
    for line in (
        "Type=notify",
        "NotifyAccess=all",
        "Restart=always",
        "StartLimitIntervalSec=0",
        "WatchdogSec=30",
        "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
    ):
        assert f"\n{line}\n" in unit
    reloads = re.findall(r"^ExecReload=.*$", unit, re.MULTILINE)
    assert [" --check " in line for line in reloads] == [True, False], "checked before the switch reads it"
    assert "MemoryDenyWriteExecute=no" in (DEPLOY / "operators.conf").read_text()


def test_a_switch_notifies_its_service_manager_when_it_is_ready_works_reloads_and_stops(tmp_path: Path) -> None:
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(60)
    environment = {**program.ENVIRONMENT, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "4000000"}
    command = [program.PROGRAM, "switch", "--listen", "127.0.0.1:0"]
    switch = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)

    def until(state: str) -> None:
        while state not in manager.recv(1000).decode().split("\n"):
            pass

    until("READY=1")
    until("WATCHDOG=1")
    switch.send_signal(signal.SIGHUP)
    until("RELOADING=1")
    until("READY=1")
    switch.terminate()
    until("STOPPING=1")
    assert program.finish(switch).returncode == 0
    manager.close()


def test_the_unit_gives_up_on_settings_that_a_person_has_to_mend(tmp_path: Path) -> None:
    assert "\nRestartPreventExitStatus=2\n" in UNIT.read_text()
    missing = tmp_path / "missing.toml"
    bad = tmp_path / "bad.toml"
    bad.write_text("[[tenant]]\n")
    for words in (
        ["--config", str(missing)],
        ["--config", str(bad)],
        ["--tokens", str(missing)],
        ["--tokens", str(bad)],
        ["--config", str(tmp_path)],
        ["--fabric", str(missing), "--node", "leaf"],
        ["--fabric", str(bad), "--node", "leaf"],
        ["--fabric", str(tmp_path), "--node", "leaf"],
    ):
        assert words[1] in program.sentence(program.run("switch", *words), code=2)


def test_a_port_or_an_address_that_a_fabric_cannot_have_is_a_setting_to_mend(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        for network, why in (("127.77.99.0", "in use"), ("192.0.2.0", "not an address of this machine")):
            file = tmp_path / "fabric.toml"
            file.write_text(FABRIC.format(network=network, port=port))
            sentence = program.sentence(program.run("switch", "--fabric", str(file), "--node", "leaf"), code=2)
            assert why in sentence


def test_a_wrong_environment_of_the_unit_is_a_setting_to_mend() -> None:
    for name, value in (("TRIBUTARY_LOG", "chatty"), ("TRIBUTARY_LOG_FORMAT", "xml")):
        environment = {**program.ENVIRONMENT, name: value}
        command = [program.PROGRAM, "switch", "--listen", "127.0.0.1:0"]
        result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60)
        assert value in program.sentence(result, code=2)


def test_where_memory_may_not_become_executable_the_refusal_names_the_setting(tmp_path: Path) -> None:
    operator = tmp_path / "larger.expr"
    operator.write_text("# element: f32\nmax(a, b)\n")
    command = [sys.executable, "-c", WITHOUT_EXECUTABLE_MEMORY, program.PROGRAM, "operator", "check", str(operator)]
    result = subprocess.run(command, capture_output=True, text=True, env=program.ENVIRONMENT, check=False, timeout=60)
    if result.returncode == UNKNOWN_TO_THE_KERNEL:
        pytest.skip("this kernel cannot forbid executable memory: Linux 6.3 or newer can")
    refusal = program.sentence(result)
    assert "MemoryDenyWriteExecute" in refusal
    assert "deploy/operators.conf" in refusal


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_switch_needs_no_privilege(job: str) -> None:
    unprivileged = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--no-new-privs",
        "--bounding-set=-all",
    ]
    switch = subprocess.Popen(
        [*unprivileged, program.PROGRAM, "switch", "--listen", "127.0.0.1:0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=program.ENVIRONMENT,
    )
    assert switch.stdout is not None
    ready = json.loads(switch.stdout.readline())
    rank = ["allreduce", "--switch", ready["listen"], "--job", job, "--world-size", "2", "--elements", "9", "--rank"]
    results = program.run_all(*([*rank, str(number)] for number in range(2)))
    switch.terminate()
    assert program.finish(switch).returncode == 0
    assert [result.returncode for result in results] == [0, 0], results


def test_tokens_are_read_again_on_sighup_and_bad_files_change_nothing(tmp_path: Path, job: str) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(TENANT.format(name="ours", token="0123456789abcdef-ours"))
    daemon = Daemon("--tokens", str(file))
    rank = [
        "allreduce",
        "--switch",
        daemon.address,
        "--job",
        job,
        "--rank",
        "0",
        "--world-size",
        "1",
        "--elements",
        "9",
    ]

    def renewed() -> str:
        daemon.process.send_signal(signal.SIGHUP)
        assert daemon.process.stdout is not None
        event = json.loads(daemon.process.stdout.readline())
        assert event["event"] == "reloaded"
        return str(event["sentence"])

    def join(token: str) -> subprocess.CompletedProcess[str]:
        environment = {**program.ENVIRONMENT, "TRIBUTARY_TOKEN": token}
        command = [program.PROGRAM, *rank]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60)

    assert join("0123456789abcdef-ours").returncode == 0
    file.write_text(TENANT.format(name="theirs", token="0123456789abcdef-theirs"))
    assert "again" in renewed()
    assert "is not one of this switch's" in program.sentence(join("0123456789abcdef-ours"))
    assert join("0123456789abcdef-theirs").returncode == 0
    file.write_text("nothing")
    assert str(file) in renewed()
    assert join("0123456789abcdef-theirs").returncode == 0, "the tokens before the bad file hold"
    assert daemon.stop().returncode == 0
