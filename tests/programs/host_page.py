"""What happens in the namespace of the test of the page's token: a switch with tokens, not at a private address."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from browser import Browser
from program import Daemon

TOKEN = "0123456789abcdef-mine"


def give(window: Browser, token: str) -> None:
    """Type a token and press the button."""
    window.evaluate(
        f"document.querySelector('#token').value = {token!r}; document.querySelector('#ask button').click()"
    )


def main() -> None:
    """Ask without a token, with a wrong token, and with the right one."""
    folder = Path(sys.argv[1])
    tokens = folder / "tokens.toml"
    tokens.write_text(f'[[tenant]]\nname = "me"\ntoken = "{TOKEN}"\n')
    tokens.chmod(0o600)
    daemon = Daemon("--tokens", str(tokens), listen="198.51.100.1:0")
    try:
        with urllib.request.urlopen(f"http://{daemon.address}/") as answer:
            assert answer.status == 200, "the page itself needs no token"
        for path in ("/status", "/history", "/metrics"):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(f"http://{daemon.address}{path}")
        with Browser(folder / "profile") as window:
            window.open(f"http://{daemon.address}/")
            text = window.await_text("This switch asks for a token")
            assert "No job" not in text
            give(window, "0123456789abcdef-wrong")
            window.await_text("This token is none of this switch's.")
            give(window, TOKEN)
            text = window.await_text("No job is here")
            assert "asks for a token" not in text
            assert (
                window.evaluate("document.querySelector('#token').value + document.cookie + localStorage.length") == "0"
            )
    finally:
        daemon.stop()
    print("asked, refused, shown")


if __name__ == "__main__":
    main()
