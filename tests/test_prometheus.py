"""What a Prometheus makes of a switch: Debian's own, its rules, and every query of the dashboard."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import program
from program import Daemon

REPO = Path(__file__).parent.parent
RULES = REPO / "deploy/prometheus"


def promtool(*words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run Prometheus's own judge."""
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is missing: apt-get install prometheus")
    return subprocess.run([tool, *words], input=text, capture_output=True, text=True, check=False, cwd=RULES)


def scrape(daemon: Daemon, path: str) -> str:
    """What Prometheus reads."""
    with urllib.request.urlopen(f"http://{daemon.address}{path}") as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return str(answer.read().decode())


def test_the_configuration_and_the_rules_are_right() -> None:
    result = promtool("check", "config", "prometheus.yml")
    assert result.returncode == 0, result.stderr
    result = promtool("check", "rules", "--lint-fatal", "tributary.rules.yml")
    assert result.returncode == 0, result.stderr


def test_alerts_are_raised_when_they_should_be_and_not_before() -> None:
    result = promtool("test", "rules", "tributary.rules.test.yml")
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_alert_has_a_test() -> None:
    alerts = set(re.findall(r"alert: (\w+)", (RULES / "tributary.rules.yml").read_text()))
    fired = set(re.findall(r'alertname="(\w+)"', (RULES / "tributary.rules.test.yml").read_text()))
    assert alerts == fired


def test_names_and_helps_follow_the_conventions(daemon: Daemon, job: str) -> None:
    protocols = re.findall(r'jobs_packets_total\{protocol="([\w-]+)"\}', scrape(daemon, "/metrics"))
    assert protocols
    for protocol in protocols:
        rank_flags = ["--switch", daemon.address, "--job", f"{job}-{protocol}", "--rank", "0", "--world-size", "1"]
        result = program.run("allreduce", *rank_flags, "--elements", "1000", "--protocol", protocol)
        assert result.returncode == 0, result.stderr
    for path in ("/metrics", "/metrics/jobs"):
        result = promtool("check", "metrics", text=scrape(daemon, path))
        assert (result.returncode, result.stderr) == (0, "")


def test_rules_and_dashboard_ask_for_metrics_that_there_are() -> None:
    page = (REPO / "docs/metrics.md").read_text()
    known = set(re.findall(r"`(tributary_\w+)`", page))
    for figure, protocols, families in re.findall(r"\| `(\w+)` \| \w+ \| (`[^|]*`) \| (`[^|]*`) \| ", page):
        for protocol in re.findall(r"\w+", protocols):
            prefixes = [f"{protocol}_{family}_".replace("_shared_", "_") for family in re.findall(r"\w+", families)]
            known |= {f"tributary_{prefix}{figure}" for prefix in prefixes}
    for file in ("prometheus/tributary.rules.yml", "prometheus/tributary.rules.test.yml", "grafana/tributary.json"):
        used = set(re.findall(r"\btributary_\w+", (REPO / "deploy" / file).read_text()))
        assert used <= known, f"{file}: {sorted(used - known)}"


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_prometheus_sees_loss_a_straggler_a_dead_rank_and_unauthorised_clients(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is missing: apt-get install prometheus")
    host = [sys.executable, str(Path(program.__file__).with_name("host_prometheus.py")), str(tmp_path)]
    star = ["lab", "star", "--hosts", "4", "--loss", "2%", "--shards", "1", "--timeout", "240s", "--", *host]
    result = subprocess.run(
        [program.PROGRAM, *star], capture_output=True, text=True, check=False, env=program.ENVIRONMENT, timeout=300
    )
    assert result.returncode == 0, result.stderr
    seen: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    assert set(seen["rules"].values()) == {"ok"}
    # The killed rank. Its two neighbours may look dead too where the machine stands still for two seconds.
    assert 1 <= seen["lost"] <= 3
    assert "TributaryMemberLost" in seen["alerts"]
    assert {"lossy", "slow", "stuck"} <= set(seen["jobs"])
    # Of 100 results about two are lost, and asked for again.
    assert 0.002 < seen["resent"] < 0.16
    assert seen["series"] < 400
