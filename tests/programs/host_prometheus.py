"""What one host of a star does in the test of Prometheus: host 0 runs and asks it, the others are ranks of jobs.

The jobs: ``lossy`` sums without an end, ``slow`` has a straggler, ``stuck`` a rank that never calls, ``dead`` loses
one. The star's links lose packets. Host 0 prints what Prometheus answered, as one object of JSON.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

import tributary

REPO = Path(__file__).parents[2]
SWITCH = os.environ["TRIBUTARY_SWITCH"]
HOST = int(os.environ["RANK"])
WORLD_SIZE = int(os.environ["WORLD_SIZE"]) - 1

#: Seconds between two looks at the switch, and what a rate is taken over: dashboards write ``$__rate_interval``.
SCRAPE_S = 1
RATE_S = 12

#: Results that ranks asked for again, under whatever protocol.
RESENDS = '{__name__=~"tributary_.+_jobs_unicast_resends_total"}'

#: Seconds after which whatever has not come does not come.
PATIENCE_S = 120


def configuration(folder: Path) -> Path:
    """The configuration that the repository has, for this switch and in a hurry."""
    text = (REPO / "deploy/prometheus/prometheus.yml").read_text()
    text = text.replace("10.0.0.1:17777", SWITCH).replace("interval: 15s", f"interval: {SCRAPE_S}s")
    text = text.replace("tributary.rules.yml", str(REPO / "deploy/prometheus/tributary.rules.yml"))
    file = folder / "prometheus.yml"
    file.write_text(text)
    return file


class Prometheus:
    """A Prometheus on this host's loopback interface."""

    def __init__(self, folder: Path) -> None:
        """Start it."""
        words = [f"--config.file={configuration(folder)}", f"--storage.tsdb.path={folder / 'data'}"]
        self.log = (folder / "prometheus.log").open("w")
        command = ["prometheus", *words, "--web.listen-address=127.0.0.1:9090"]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def get(self, path: str, **words: str) -> Any:
        """What it answers."""
        url = f"http://127.0.0.1:9090/api/v1/{path}?{urllib.parse.urlencode(words)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now."""
        return list(self.get("query", query=expression)["result"])

    def value(self, expression: str) -> float:
        """The value of an expression of one series; 0 where there is none."""
        series = self.query(expression)
        return float(series[0]["value"][1]) if series else 0.0

    def end(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.wait(30)
        self.log.close()


def until(prometheus: Prometheus, what: str, condition: str) -> None:
    """Wait until an expression has a value."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if prometheus.query(condition):
                return
        except (urllib.error.URLError, ConnectionError):
            pass  # It is not up yet.
        time.sleep(0.2)
    raise SystemExit(f"never: {what} ({condition})")


def dashboard() -> dict[str, str]:
    """Every query of the dashboard, by panel."""
    panels = json.loads((REPO / "deploy/grafana/tributary.json").read_text())["panels"]
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        .replace("$__rate_interval", f"{RATE_S}s")
        .replace("$instance", ".*")
        for panel in panels
        for target in panel["targets"]
    }


def watch(folder: Path) -> None:
    """Run Prometheus until everything has been seen, ask all that the test wants to know, and print it."""
    prometheus = Prometheus(folder)
    try:
        until(prometheus, "a switch that has lost nobody", "tributary_jobs_members_lost_total == 0")
        until(prometheus, "a job that will lose a rank", 'tributary_job_blocks_total{name="dead"} > 0')
        (folder / "watched").touch()
        until(prometheus, "a dead rank", "tributary_jobs_members_lost_total > 0")
        until(prometheus, "a job that stands still", "tributary_jobs_stalled_seconds > 5")
        until(prometheus, "lost results", f"{RESENDS} > 0")
        until(prometheus, "a straggler", f"min_over_time(tributary_jobs_awaited_ranks[{RATE_S}s]) > 0")
        until(prometheus, "unauthorised clients", f"rate(tributary_rejected_packets_total[{RATE_S}s]) > 0")
        until(prometheus, "shared memory", "tributary_shared_slots > 0")
        until(prometheus, "a refusal", f"rate(tributary_api_errors_total[{RATE_S}s]) > 0")
        until(prometheus, "an alert", 'ALERTS{alertname="TributaryMemberLost"}')
        for title, expression in dashboard().items():
            # A rate needs two looks at the switch: on a busy machine there may have been one.
            until(prometheus, f"data for {title}", expression)
        seen = {
            "rules": {rule["name"]: rule["health"] for rule in prometheus.get("rules")["groups"][0]["rules"]},
            "lost": prometheus.value("tributary_jobs_members_lost_total"),
            "resent": prometheus.value(f"sum({RESENDS}) / sum(tributary_jobs_contributions_total)"),
            "alerts": sorted({series["metric"]["alertname"] for series in prometheus.query("ALERTS")}),
            "jobs": sorted({series["metric"]["name"] for series in prometheus.query("tributary_job_info")}),
            "series": int(prometheus.value('count({job="tributary",__name__=~"tributary_.*"})')),
        }
    finally:
        (folder / "done").touch()
        prometheus.end()
    print(json.dumps(seen), flush=True)


def sum_until_done(folder: Path, job: str, pause_s: float) -> None:
    """Sum with the others until host 0 has seen enough: all stop after the same sum."""
    with tributary.connect(SWITCH, job=job, rank=HOST - 1, world_size=WORLD_SIZE, timeout=PATIENCE_S) as group:
        data = np.ones(100_000, np.float32)
        while True:
            time.sleep(pause_s)
            data[0] = (folder / "done").exists()
            if group.all_reduce(data)[0] > 0:
                return


def never_call(folder: Path) -> None:
    """Join, and leave the others waiting."""
    with tributary.connect(SWITCH, job="stuck", rank=HOST - 1, world_size=WORLD_SIZE, timeout=PATIENCE_S) as group:
        if HOST < WORLD_SIZE:
            try:
                group.all_reduce(np.ones(1_000, np.float32))
            except tributary.TributaryError:
                return  # The last one has left when all was seen.
        while not (folder / "done").exists():
            time.sleep(0.1)


def lose_a_rank(folder: Path) -> None:
    """Sum in a process of its own, and kill the last when Prometheus looks: an increase needs a value before."""
    words = ["--switch", SWITCH, "--job", "dead", "--rank", str(HOST - 1), "--world-size", str(WORLD_SIZE)]
    endless = ["--elements", "10000", "--iters", "100000000"]
    command = [sys.executable, "-m", "tributary", "allreduce", *words, *endless]
    rank = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if HOST == WORLD_SIZE:
        while not ((folder / "watched").exists() or (folder / "done").exists()):
            time.sleep(0.1)
        rank.send_signal(signal.SIGKILL)
    rank.wait(PATIENCE_S)


def try_every_protocol() -> None:
    """Sum once under each, alone: some bring memory that all of their jobs share."""
    with urllib.request.urlopen(f"http://{SWITCH}/metrics", timeout=10) as answer:
        names = re.findall(r'jobs_packets_total\{protocol="([\w-]+)"\}', answer.read().decode())
    for name in names:
        with tributary.connect(SWITCH, job=f"one-{name}", rank=0, world_size=1, protocol=name) as group:
            group.all_reduce(np.ones(1_000, np.float32))


def knock(folder: Path) -> None:
    """Be an unauthorised client: packets of nothing, and a request that is none."""
    host, port = SWITCH.rsplit(":", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        while not (folder / "done").exists():
            udp.sendto(b"hello, is anybody there?", (host, int(port)))
            request = urllib.request.Request(f"http://{SWITCH}/jobs/lossy/join", data=b"{}", method="POST")
            try:
                urllib.request.urlopen(request, timeout=10).close()
            except urllib.error.HTTPError as error:
                error.close()
            time.sleep(0.2)


def main() -> None:
    """Be one of the hosts."""
    folder = Path(sys.argv[1])
    if HOST == 0:
        return watch(folder)
    pause_s = 0.3 if HOST == WORLD_SIZE else 0.0
    loads: list[tuple[Any, tuple[Any, ...]]] = [
        (sum_until_done, (folder, "lossy", 0.05)),
        (sum_until_done, (folder, "slow", pause_s)),
        (never_call, (folder,)),
        (lose_a_rank, (folder,)),
        *([(knock, (folder,)), (try_every_protocol, ())] if HOST == 1 else []),
    ]
    threads = [threading.Thread(target=load, args=words) for load, words in loads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return None


if __name__ == "__main__":
    main()
