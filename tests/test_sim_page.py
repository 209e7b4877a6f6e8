"""The page of a run (``tributary sim run FILE --html PAGE``) in a real browser: what people see of a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import browser
import program
from browser import Browser

pytestmark = pytest.mark.skipif(browser.program() is None, reason="chromium is missing: apt-get install chromium")

#: Three hosts send to a fourth, and PAUSE keeps the queues from overflowing.
INCAST = """
[network]
leaf_spine = { leaves = 2, spines = 1, hosts_per_leaf = 2 }
rate = "10 Gbit/s"
queue = "60 kB"
lossless = { xoff = "20 kB" }
[[traffic]]
pattern = "list"
flows = [
    { from = "host 0", to = "host 3", bytes = "400 kB", at = "50 us" },
    { from = "host 1", to = "host 3", bytes = "400 kB", at = "50 us" },
    { from = "host 2", to = "host 3", bytes = "400 kB", at = "50 us" },
]
"""

#: The link that all packets must take.
HOT = "leaf 1 to host 3"


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Browser]:
    """A browser."""
    with Browser(tmp_path / "profile") as opened:
        yield opened


def colours(window: Browser) -> list[str]:
    """The class of each link's line, in the order of the data."""
    return list(window.evaluate("cables.map((path) => path.getAttribute('class'))"))


def move(window: Browser, frame: int) -> None:
    """Drag the slider."""
    window.evaluate(
        f"{{ const time = document.getElementById('time'); time.value = {frame};"
        " time.dispatchEvent(new Event('input')); }"
    )


def choose(window: Browser, measure: str) -> None:
    """Choose what links are coloured by."""
    window.evaluate(
        f"{{ const menu = document.getElementById('measure'); menu.value = {measure!r};"
        " menu.dispatchEvent(new Event('change')); }"
    )


def test_people_see_which_links_are_busy_fill_up_and_are_stopped_over_time(window: Browser, tmp_path: Path) -> None:
    file, page = tmp_path / "in<cast.toml", tmp_path / "page.html"
    file.write_text(INCAST)
    ran = program.run("sim", "run", str(file), "--html", str(page))
    assert page.exists(), ran.stderr
    window.open(page.as_uri())
    text = window.await_text("utilisation now")
    assert "4 hosts, 3 switches, seed 1" in text
    assert window.evaluate("document.getElementById('title').textContent") == "in<cast"
    # Two lines for each of six cables.
    assert window.evaluate("document.querySelectorAll('svg.net path').length") == 12
    names = window.evaluate("data.links.map((link) => link.name)")
    hot, uplink = names.index(HOT), names.index("host 0 to leaf 0")
    frames = window.evaluate("frames")
    assert frames > 100

    assert colours(window)[hot] == "u0", "nothing has reached it in the first moment"
    move(window, frames // 2)
    assert colours(window)[hot] == "u9"
    assert colours(window)[hot ^ 1] == "u1", "acknowledgements alone go back"
    assert HOT in window.evaluate("[...document.querySelectorAll('#links td button')].map((name) => name.textContent)")
    shown = window.evaluate("document.getElementById('now').textContent")
    assert shown.endswith("us")

    choose(window, "queue")
    assert "from " in window.evaluate("document.getElementById('scale').textContent")
    assert colours(window)[hot] != "u0"
    choose(window, "pause")
    stopped = window.evaluate(f"range(frames).map((at) => data.paused[at * links + {uplink}])")
    assert 0 < max(stopped) <= 1000
    move(window, stopped.index(max(stopped)))
    assert colours(window)[uplink] != "u0"
    assert colours(window)[hot] == "u0", "hosts never order a PAUSE"

    window.evaluate(f"cables[{uplink}].dispatchEvent(new Event('click'))")
    assert window.evaluate("document.querySelector('#past h2').textContent") == "host 0 to leaf 0: PAUSE"
    assert colours(window)[uplink].endswith(" chosen")
    window.evaluate("document.querySelector('#past button').click()")
    assert window.evaluate("document.querySelector('#past h2').textContent").startswith("All links: ")

    window.evaluate("document.getElementById('play').click()")
    before = window.evaluate("frame")
    window.evaluate(f"new Promise((done) => setInterval(() => frame === {before} || done(), 10))")
    window.evaluate("document.getElementById('play').click()")
    assert window.faults == []


def test_the_page_is_dark_for_people_who_want_it_and_loads_nothing(window: Browser, tmp_path: Path) -> None:
    file, page = tmp_path / "incast.toml", tmp_path / "page.html"
    file.write_text(INCAST)
    program.run("sim", "run", str(file), "--html", str(page))
    text = page.read_text()
    assert "default-src 'none'" in text
    for outside in ("http://", "https://", "//cdn", "import ", "innerHTML", "eval("):
        assert outside not in text.replace("http://www.w3.org/2000/svg", ""), outside
    back = "getComputedStyle(document.body).backgroundColor"
    window.open(page.as_uri())
    window.await_text("utilisation now")
    assert window.evaluate(back) == "rgb(247, 247, 245)"
    window.dark()
    assert window.evaluate(back) == "rgb(22, 24, 27)"
    assert window.faults == []
