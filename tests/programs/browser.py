"""A headless browser: Chromium, driven over a pipe by the DevTools protocol, without any library."""

from __future__ import annotations

import base64
import fcntl
import functools
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

PATIENCE_S = 60
#: Debian's name, then others'.
NAMES = ("chromium", "chromium-browser", "google-chrome")


@functools.cache
def program() -> str | None:
    """Where the browser is, if there is one that runs: some names stand for packages of another kind."""
    for name in filter(None, map(shutil.which, NAMES)):
        if subprocess.run([name, "--version"], capture_output=True, check=False).returncode == 0:
            return name
    return None


class Browser:
    """One window with one page; a context manager that ends the browser."""

    def __init__(self, folder: Path, width: int = 1100, height: int = 760) -> None:
        """Start it; its profile goes to the folder."""
        chromium = program()
        assert chromium is not None, "chromium is missing: apt-get install chromium"
        (to_read, self._ask), (self._from_browser, to_write) = _pipe(), _pipe()
        # It reads from descriptor 3 and writes to 4. Root has no sandbox there: it sees our own pages alone.
        words = [
            *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
            *("--remote-debugging-pipe", f"--user-data-dir={folder}", f"--window-size={width},{height}", "about:blank"),
        ]
        shell = ["sh", "-c", f'exec "$@" 3</dev/fd/{to_read} 4>/dev/fd/{to_write}', "sh", *words]
        self._log = (folder.parent / f"{folder.name}.log").open("w")
        self._process = subprocess.Popen(shell, pass_fds=(to_read, to_write), stdout=self._log, stderr=self._log)
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._number, self._session = b"", 0, None
        #: What went wrong in the page: exceptions, and what its policy or the network refused.
        self.faults: list[str] = []
        try:
            target = self._call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self._call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser."""
        self._process.kill()
        self._process.wait()
        os.close(self._ask)
        os.close(self._from_browser)
        self._log.close()

    def open(self, url: str) -> None:
        """Go to a page."""
        self._call("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def text(self) -> str:
        """What a person reads in the page; nothing, while it begins."""
        return str(self.evaluate("document.body === null ? '' : document.body.innerText"))

    def await_text(self, words: str) -> str:
        """Wait until the page says so."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            text = self.text()
            if words in text:
                return text
            time.sleep(0.1)
        raise AssertionError(f"the page never said {words!r}: {text!r}; {self.faults}")

    def dark(self) -> None:
        """Be a person who prefers dark pages."""
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def picture(self, file: Path) -> None:
        """Take a picture of the page."""
        file.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def _call(self, method: str, **words: Any) -> dict[str, Any]:
        self._number += 1
        request = {"id": self._number, "method": method, "params": words}
        if self._session is not None:
            request["sessionId"] = self._session
        os.write(self._ask, json.dumps(request).encode() + b"\0")
        while True:
            message = self._next()
            self._note(message)
            if message.get("id") == self._number:
                assert "error" not in message, message
                return dict(message["result"])

    def _note(self, message: dict[str, Any]) -> None:
        words = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.faults.append(json.dumps(words["exceptionDetails"]))
        if message.get("method") == "Log.entryAdded" and words["entry"]["level"] == "error":
            self.faults.append(words["entry"]["text"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            read = os.read(self._from_browser, 1 << 16)
            assert read, f"the browser has ended: {Path(self._log.name).read_text()[-2000:]}"
            self._buffer += read
        message, self._buffer = self._buffer.split(b"\0", 1)
        return dict(json.loads(message))


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are not among the descriptors that the browser wants."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]
