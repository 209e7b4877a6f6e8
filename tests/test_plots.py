"""Pictures of reproduced results."""

import io
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
    return {"id": "made-up", "title": "x", "quick": True, "figures": [figure, figure], "rows": [row()]}


def row() -> dict[str, Any]:
    """A published 2.5 where ours, on line a at 64, is 3."""
    ours = {"low": 2.0, "median": 3.0, "high": 4.0, "over": "seeds"}
    cells = ["what", "2.5 ms", "3 ms (2 to 4)", "1.200", "within 10 %, ours", "differs", ""]
    published = {"value": 2.5, "rule": {"within": 0.1}, "point": {"line": "a", "x": 64.0}}
    return {**published, "basis": "published", "verdict": "differs", "ours": ours, "cells": cells}


def test_draws_a_picture_beside_the_data(tmp_path: Path) -> None:
    data = tmp_path / "made-up.json"
    data.write_text(json.dumps(outcome()))
    assert plots.main([str(data)]) == 0
    assert (tmp_path / "made-up.png").read_bytes().startswith(b"\x89PNG")


def test_names_come_one_after_the_other_and_one_that_cannot_be_drawn_does_not_keep_the_others_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "made-up.json"
    data.write_text(json.dumps(outcome()))
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{tmp_path / 'nothing.json'}\n{data}\n"))
    assert plots.main(["-"]) == 1
    assert (tmp_path / "made-up.png").exists()
    assert "nothing.json is not drawn: " in capsys.readouterr().err


def test_an_experiment_without_figures_and_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="made-up has nothing to draw"):
        plots.draw({**outcome(), "figures": [], "rows": []})


def test_a_published_number_is_a_point_beside_ours_and_a_row_below() -> None:
    *figures, rows = plots.draw(outcome()).axes
    for axis in figures:
        (point,) = [line for line in axis.get_lines() if line.get_label() == "published"]
        assert [np.asarray(data).tolist() for data in point.get_data()] == [[64.0], [2.5]]
    drawn = [[np.asarray(data).tolist() for data in line.get_data()] for line in rows.get_lines()]
    assert drawn == [[[1], [0]], [[0.8, 1.6], [0, 0]], [[1.2], [0]]]
    assert rows.get_yticklabels()[0].get_text() == "what\n2.5 ms; ours 3 ms (2 to 4)"


def test_a_number_that_is_on_no_line_is_drawn_in_its_row_alone() -> None:
    elsewhere = {**row(), "point": {"line": "a", "x": 32.0}}
    *figures, rows = plots.draw({**outcome(), "rows": [elsewhere]}).axes
    assert all(line.get_label() != "published" for axis in figures for line in axis.get_lines())
    assert len(rows.get_lines()) == 3


def test_an_experiment_of_ones_own_has_figures_and_no_rows() -> None:
    own = {key: value for key, value in outcome().items() if key != "rows"}
    assert len(plots.draw(own).axes) == 2


def test_rows_without_a_figure_make_a_picture() -> None:
    (rows,) = plots.draw({**outcome(), "figures": [], "rows": [row(), {**row(), "value": 0}]}).axes
    assert len(rows.get_lines()) == 3, "what is published as 0 divides nothing"
    assert len(rows.get_yticklabels()) == 2


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
