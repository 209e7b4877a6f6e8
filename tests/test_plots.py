"""Pictures of reproduced results."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from tributary import plots


def outcome() -> dict[str, Any]:
    series = [{"name": "a", "points": [[1.0, 2.0], [64.0, 3.0]]}, {"name": "none", "points": []}]
    figure = {"title": "t", "x": "slots", "y": "ms", "log_x": True, "series": series}
    return {"id": "made-up", "title": "x", "quick": True, "figures": [figure, figure]}


def test_draws_a_picture_beside_the_data(tmp_path: Path) -> None:
    data = tmp_path / "made-up.json"
    data.write_text(json.dumps(outcome()))
    assert plots.main([str(data)]) == 0
    assert (tmp_path / "made-up.png").read_bytes().startswith(b"\x89PNG")


def test_an_experiment_without_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="made-up has no figures"):
        plots.draw({**outcome(), "figures": []})
