"""Pictures of reproduced results."""

import json
from pathlib import Path
from typing import Any

import numpy as np
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


def test_what_happened_meanwhile_is_a_mark_with_its_name() -> None:
    marks = [{"name": "leaf 0 dead", "from": 8.0, "to": 16.0}, {"name": "core links: down", "from": 32.0, "to": None}]
    figure = {**outcome()["figures"][0], "log_x": False, "marks": marks}
    (axis,) = plots.draw_figures([figure], "t").axes
    legend = axis.get_legend()
    assert legend is not None
    assert {"leaf 0 dead", "core links: down"} <= {text.get_text() for text in legend.get_texts()}
    lines = {str(line.get_label()): np.asarray(line.get_xdata()) for line in axis.get_lines()}
    begins = [lines[str(mark["name"])][0] for mark in marks]
    assert begins == [8.0, 32.0]
    assert len(axis.patches) == 2
