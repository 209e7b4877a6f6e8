"""docs/notebook.md: what it shows runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas")
pytest.importorskip("matplotlib")

PAGE = Path(__file__).parent.parent / "docs" / "notebook.md"


def test_the_pages_session_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    session: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(block, session)
    assert session["result"].failure is None
    assert "<pre>" in session["result"]._repr_html_()
    assert len(session["sweep"].runs) == 3 * 4 * 5
    assert set(session["sweep"].runs["failure"]) == {""}
    assert (tmp_path / "trees.png").read_bytes().startswith(b"\x89PNG")
    assert "60 of 60" in capsys.readouterr().err


def test_a_result_draws_itself(tmp_path: Path) -> None:
    from tributary import sim

    result = sim.run("[network]\nstar = { hosts = 3 }\n[[job]]\nprotocol = 'ring'\ntensor = '10 kB'\n")
    result.plot().savefig(tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
