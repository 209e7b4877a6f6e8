"""The page at ``http://SWITCH:17777/`` in a real browser: what people see, also of names that mean harm."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import browser
import program
import rank
from browser import Browser
from program import Daemon

pytestmark = pytest.mark.skipif(browser.program() is None, reason="chromium is missing: apt-get install chromium")


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Browser]:
    """A browser."""
    with Browser(tmp_path / "profile") as opened:
        yield opened


def test_an_empty_switch_says_how_to_begin(window: Browser) -> None:
    daemon = Daemon()
    try:
        window.open(f"http://{daemon.address}/")
        text = window.await_text("No job is here")
        assert f"tributary allreduce --switch {daemon.address} --job first --rank 0 --world-size 1" in text
        assert "0 of at most" in text
        assert window.faults == []
    finally:
        daemon.stop()
    # What was seen stays, with the time that it is of.
    window.await_text("The switch does not answer. What is below is of")


def test_a_switch_at_every_address_is_advised_by_one_that_a_worker_can_use(window: Browser) -> None:
    daemon = Daemon(listen="0.0.0.0:0")
    port = daemon.address.split(":")[1]
    try:
        # As through a tunnel: no other machine reaches the switch at the browser's address.
        window.open(f"http://127.0.0.1:{port}/")
        text = window.await_text("No job is here")
        assert f"--switch ADDRESS-OF-THE-SWITCH:{port} " in text
        advised = "addressForWorkers({listen: '0.0.0.0:17777'})"
        assert window.evaluate(advised) == "ADDRESS-OF-THE-SWITCH:17777"
        assert window.evaluate("addressForWorkers({listen: '10.0.0.9:17777'})") == "10.0.0.9:17777"
        assert window.faults == []
    finally:
        daemon.stop()


def test_people_see_which_ranks_are_awaited_and_what_flows(window: Browser, daemon: Daemon, job: str) -> None:
    ones = np.ones(10, np.float32)
    with ThreadPoolExecutor() as pool:
        joining = [pool.submit(rank.connect, number, 3, daemon.address, job) for number in range(3)]
        groups = [joined.result() for joined in joining]
        punctual = [pool.submit(groups[number].all_reduce, ones) for number in (0, 2)]
        window.open(f"http://{daemon.address}/")
        window.await_text("waits for rank 1")
        window.await_text("In allreduce 1: sum of 10 f32, for ")
        window.await_text("rank 1 not in it yet")
        window.await_text("Waited for in the last minute: rank 1 (100 %)")
        card = f"[...document.querySelectorAll('section')].find((card) => card.innerText.includes({json.dumps(job)}))"
        states = window.evaluate(f"[...{card}.querySelectorAll('li')].map((rank) => rank.className)")
        assert states == ["present", "waited", "present"]
        said = window.evaluate(f"{card}.querySelectorAll('li')[1].getAttribute('aria-label')")
        assert said.startswith("rank 1: waited for, 127.0.0.1:")
        groups[1].all_reduce(ones)
        assert all((late.result() == 3).all() for late in punctual)
        window.await_text("1 collective done")
        # Something flows for some looks, and the graph rises.
        until = time.monotonic() + 3
        data = np.ones(200_000, np.float32)
        while time.monotonic() < until:
            list(pool.map(lambda group: group.all_reduce(data), groups))
        drawn = window.evaluate(f"{card}.querySelector('svg').getAttribute('aria-label')")
        assert drawn.startswith("Tensor summed: now ")
        line = f"{card}.querySelector('path.line').getAttribute('d')"
        heights = window.evaluate(f"new Set({line}.match(/,[0-9.]+/g)).size")
        assert heights > 1, "the line is not flat"
        for group in groups:
            pool.submit(group.close)
    assert window.faults == []


def test_people_find_a_job_among_many_and_see_what_has_ended(window: Browser, job: str) -> None:
    daemon = Daemon()
    names = [f"{job}-{kind}" for kind in ("apple", "pear", "plum")]
    titles = "[...document.querySelectorAll('#jobs h2')].map((title) => title.innerText)"
    last = "[...document.querySelectorAll('#jobs section')].at(-1)"
    try:
        with rank.connect(0, 1, daemon.address, f"{job}-over") as over:
            over.all_reduce(np.ones(10, np.float32))
        groups = [rank.connect(0, 1, daemon.address, name) for name in names]
        window.open(f"http://{daemon.address}/")
        window.await_text(names[2])
        assert window.evaluate(titles) == names
        # The last card is marked and selected, and it is still the same when all that was before it is gone.
        window.evaluate(f"{last}.marked = true; getSelection().selectAllChildren({last}.querySelector('h2'))")
        typed = "const input = document.getElementById('filter'); input.value = 'PLU'"
        window.evaluate(f"{{ {typed}; input.dispatchEvent(new Event('input')); }}")
        window.await_text("1 of 3")
        assert window.evaluate(titles) == names[2:]
        assert window.evaluate(f"{last}.marked") is True
        assert window.evaluate("getSelection().toString()").strip() == names[2]
        text = window.await_text("Ended in the last hour")
        ended = text.split("Ended in the last hour")[1]
        assert f"{job}-over" in ended
        assert "127.0.0.1" in ended
        assert "1 minute ago" in text
        about = window.evaluate("document.querySelector('#jobs .soft').innerText")
        assert about.startswith("127.0.0.1, "), about
        # Nothing was lost, so nothing is red.
        assert window.evaluate("document.querySelectorAll('svg.bad').length") == 0
        for group in groups:
            group.close()
        assert window.faults == []
    finally:
        daemon.stop()


def test_the_page_loads_nothing_and_runs_nothing_but_its_own(daemon: Daemon) -> None:
    with urllib.request.urlopen(f"http://{daemon.address}/") as answer:
        page, headers = answer.read().decode(), answer.headers
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'nonce-")
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    nonce = policy.split("'nonce-")[1].split("'")[0]
    assert page.count(f'nonce="{nonce}"') == 2
    with urllib.request.urlopen(f"http://{daemon.address}/") as answer:
        assert nonce not in answer.read().decode(), "each answer has another one"
    for outside in ("http://", "https://", "//cdn", "import ", "innerHTML", "eval("):
        assert outside not in page.replace("http://www.w3.org/2000/svg", ""), outside


#: Two switches and a host at one of them.
FABRIC = """secret = "0123456789abcdef"
controller = "top"
network = "127.77.98.0"
port = {port}
[graph]
hosts = ["here"]
switches = ["leaf", "top"]
links = [["here", "leaf"], ["leaf", "top"]]
[addresses]
here = "127.0.0.1"
"""


def await_silent(window: Browser, count: int) -> None:
    """Wait until the picture has this many silent neighbours."""
    for _ in range(600):
        if window.evaluate("document.querySelectorAll('svg.net g.down').length") == count:
            return
        time.sleep(0.1)
    raise AssertionError(window.evaluate("document.body.innerText"))


def test_a_fabric_s_switch_shows_its_neighbours_and_the_controller_all_switches_and_which_are_silent(
    window: Browser, tmp_path: Path, job: str
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = tmp_path / "fabric.toml"
    file.write_text(FABRIC.format(port=port))
    switches = {name: Daemon("--fabric", str(file), "--node", name, listen=None) for name in ("leaf", "top")}
    boxes = "[...document.querySelectorAll('svg.net g text:first-of-type')].map((name) => name.textContent)"
    down = "document.querySelector('svg.net g.down').textContent"
    leaf, top = (switches[name].address for name in ("leaf", "top"))
    try:
        window.open(f"http://{leaf}/")
        window.await_text("jobs, ")
        await_silent(window, 0)
        assert window.evaluate(boxes) == ["top", "leaf", "here"], "from the spine to the host"
        assert window.evaluate("document.querySelector('#about a').textContent") == "top"
        switches["top"].process.send_signal(signal.SIGSTOP)
        try:
            await_silent(window, 1)
            assert "top" in window.evaluate(down)
        finally:
            switches["top"].process.send_signal(signal.SIGCONT)
        await_silent(window, 0)
        with rank.connect(0, 1, leaf, job):
            window.open(f"http://{top}/")
            window.await_text(job)
            assert window.evaluate(boxes) == ["top", "leaf", "here"]
            assert window.evaluate("document.querySelectorAll('svg.net path').length") == 2
            assert f"\n{job}" in window.evaluate("document.querySelectorAll('svg.net g title')[1].textContent")
            tree = program.run("status", "--switch", leaf, "--tree").stdout
            assert tree.startswith("fabric of 2 switches, jobs are formed at top\n"), tree
        switches["leaf"].kill()
        window.await_text("Switch leaf does not answer: ")
        assert "leaf" in window.evaluate(down)
        tree = program.run("status", "--switch", top, "--tree").stdout
        assert "switch leaf DOES NOT ANSWER the controller: " in tree, tree
        assert window.faults == []
    finally:
        for daemon in switches.values():
            daemon.stop() if daemon.process.poll() is None else None


def test_a_rack_s_switch_and_its_parent_show_each_other(window: Browser, job: str) -> None:
    top = Daemon()
    leaf = Daemon("--parent", top.address)
    try:
        with rank.connect(0, 1, leaf.address, job):
            program.await_job(top, job, lambda entry: entry["state"] == "running")
            for one, other in ((top, leaf), (leaf, top)):
                window.open(f"http://{one.address}/")
                window.await_text(job)
                pictured = "document.querySelector('svg.net').textContent"
                assert other.address in window.evaluate(pictured)
            tree = program.run("status", "--switch", leaf.address, "--tree")
            assert tree.stdout.startswith(f"switch {top.address}: 1 job"), tree.stdout
            assert f"└─ switch {leaf.address}: 1 job" in tree.stdout
            assert tree.stdout.rstrip().endswith(f"{job}: ranks 0")
    finally:
        leaf.stop()
        top.stop()


EVIL = '<img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script>'


class Liar(BaseHTTPRequestHandler):
    """A switch that has heard names which no switch takes: it serves the page of a real one, and lies."""

    page = b""
    observed: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        """Answer."""
        if self.path == "/":
            # Without the policy: what holds then holds by the page alone.
            self._say("text/html; charset=utf-8", self.page)
        else:
            self._say("text/event-stream", f"data: {json.dumps(self.observed)}\n\n".encode())

    def _say(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def test_names_that_are_html_stay_text(window: Browser, daemon: Daemon, job: str) -> None:
    with rank.connect(0, 1, daemon.address, job):
        entry = program.await_job(daemon, job, lambda entry: entry["state"] == "running")
        with urllib.request.urlopen(f"http://{daemon.address}/status") as answer:
            status = json.load(answer)
        with urllib.request.urlopen(f"http://{daemon.address}/history") as answer:
            history = json.load(answer)
        with urllib.request.urlopen(f"http://{daemon.address}/") as answer:
            Liar.page = answer.read()
    entry |= {"name": EVIL, "protocol": EVIL, "state": EVIL, "broken": EVIL}
    entry["members"] = [entry["members"][0] | {"addr": EVIL, "state": EVIL}]
    status["jobs"] = [entry]
    status["switch"]["version"] = status["switch"]["listen"] = EVIL
    status["switch"]["earlier_jobs"] = [EVIL]
    over = {"protocol": EVIL, "world_size": 1, "ended_s_ago": 1.0, "lasted_s": 1.0, "goodput_bytes": 1}
    ended = [over | {"name": EVIL, "client": EVIL, "end": EVIL, "why": EVIL}]
    Liar.observed = {"status": status, "history": history, "ended": ended}
    with ThreadingHTTPServer(("127.0.0.1", 0), Liar) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        window.open(f"http://127.0.0.1:{server.server_address[1]}/")
        window.await_text(EVIL)
        window.await_text(f"the earlier program serves 1 job: {EVIL[:40]}")
        assert window.evaluate("document.querySelectorAll('img, section script, header script').length") == 0
        assert window.evaluate("document.title").endswith(EVIL)
        server.shutdown()


def test_hundreds_of_jobs_are_a_list_whose_lines_open_and_survive(window: Browser, daemon: Daemon, job: str) -> None:
    with rank.connect(0, 1, daemon.address, job):
        entry = program.await_job(daemon, job, lambda entry: entry["state"] == "running")
        observed = {}
        for path in ("status", "history", "ended"):
            with urllib.request.urlopen(f"http://{daemon.address}/{path}") as answer:
                observed[path] = json.load(answer)
        with urllib.request.urlopen(f"http://{daemon.address}/") as answer:
            Liar.page = answer.read()
    status = observed["status"]
    status["jobs"] = [entry | {"name": f"job-{number}", "id": number} for number in range(1, 201)]
    Liar.observed = observed = observed | {"ended": observed["ended"]["ended"]}
    rows = "document.querySelectorAll('#jobs table.list tr')"
    with ThreadingHTTPServer(("127.0.0.1", 0), Liar) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        window.open(f"http://127.0.0.1:{server.server_address[1]}/")
        window.await_text("200 of 200")
        assert window.evaluate(f"[{rows}.length, {rows}[10].innerText.split('\\t')[0]]") == [201, "job-10"]
        window.evaluate(f"{{ {rows}[10].marked = true; {rows}[10].querySelector('button').click(); }}")
        assert window.evaluate(f"{rows}.length") == 202
        assert window.evaluate(f"{rows}[11].querySelector('h2').textContent") == "job-10"
        # The next event finds the line as it was, and the card below it.
        Liar.observed = observed | {"status": status | {"jobs": status["jobs"][5:]}}
        window.await_text("195 of 195")
        assert window.evaluate(f"[{rows}.length, {rows}[5].marked]") == [197, True]
        assert window.evaluate(f"{rows}[6].querySelectorAll('.ranks li').length") == 1
        window.evaluate("{ const form = document.getElementById('form'); form.value = 'cards'; look(); }")
        assert window.evaluate("document.querySelectorAll('#jobs > section').length") == 195
        server.shutdown()


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
def test_from_outside_the_page_asks_for_the_token(tmp_path: Path) -> None:
    """In a namespace whose own address is not private: there the switch asks everybody for a token."""
    inner = [sys.executable, str(Path(browser.__file__).with_name("host_page.py")), str(tmp_path)]
    setup = 'ip link set lo up && ip address add 198.51.100.1/32 dev lo && exec "$@"'
    ran = subprocess.run(
        ["unshare", "--net", "sh", "-c", setup, "sh", *inner], capture_output=True, text=True, timeout=200, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "asked, refused, shown"
