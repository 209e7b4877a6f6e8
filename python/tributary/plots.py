"""Pictures of what `tributary reproduce --out` and `tributary sim run --plot` have written.

>>> python -m tributary.plots figures/switchml-fig6.json

writes `figures/switchml-fig6.png`; `-` draws the files whose names come on stdin, one a line, as they come. Needs
matplotlib: `pip install 'tributary-ina[plots]'`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from itertools import cycle
from pathlib import Path
from textwrap import shorten
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

#: Lines with more points are drawn without marks.
MOST_MARKS = 40

#: Styles that keep lines visible that lie on each other.
STYLES = ("solid", "dashed", "dashdot", "dotted")

#: How many figures stand side by side; more figures go below.
COLUMNS = 3

#: The mark of a published number, by the rule: a number, or a limit that points to where it is kept.
PUBLISHED = {"at_least": ">", "at_most": "<"}

#: The colour of our number, by the verdict.
VERDICTS = {"agrees": "tab:green", "partial": "tab:orange", "differs": "tab:red"}


def draw(outcome: dict[str, Any]) -> Figure:
    """Draw one experiment, as its JSON describes it: its figures, and below them its rows where a paper has numbers."""
    figures, rows = outcome["figures"], outcome.get("rows", [])
    if not figures and not rows:
        raise ValueError(f"{outcome['id']} has nothing to draw")
    columns, lines = _grid(len(figures))
    heights = [4.0 * lines] * bool(figures) + [1.2 + 0.36 * len(rows)] * bool(rows)
    picture = Figure(figsize=(6.0 * max(columns, 2 if rows else 1), sum(heights)), layout="constrained")
    subfigures = picture.subfigures(len(heights), 1, height_ratios=heights, squeeze=False).flatten()
    if figures:
        axes = _draw_grid(subfigures[0], figures)
        for row in rows:
            _draw_published(axes, figures, row)
    if rows:
        _draw_rows(subfigures[-1].subplots(), rows)
    quick = " (small inputs)" if outcome["quick"] else ""
    picture.suptitle(f"{outcome['id']}: {outcome['title']}{quick}")
    return picture


def draw_figures(figures: Sequence[dict[str, Any]], title: str) -> Figure:
    """Draw figures side by side under a title; four of them two by two."""
    if not figures:
        raise ValueError("there is nothing to draw")
    columns, lines = _grid(len(figures))
    picture = Figure(figsize=(6.0 * columns, 4.0 * lines), layout="constrained")
    _draw_grid(picture, figures)
    picture.suptitle(title)
    return picture


def _grid(figures: int) -> tuple[int, int]:
    """Columns and lines of some figures."""
    columns = 2 if figures == 4 else min(figures, COLUMNS)
    return columns, -(-figures // max(columns, 1))


def _draw_grid(canvas: Any, figures: Sequence[dict[str, Any]]) -> list[Any]:
    columns, lines = _grid(len(figures))
    axes = list(canvas.subplots(lines, columns, squeeze=False).flatten())
    for axis, figure in zip(axes, figures, strict=False):
        _draw_lines(axis, figure)
    for axis in axes[len(figures) :]:
        axis.set_axis_off()
    return axes


def _draw_published(axes: Sequence[Any], figures: Sequence[dict[str, Any]], row: dict[str, Any]) -> None:
    """Draw a row's published number where ours lies on a line."""
    if not (point := row.get("point")):
        return
    ours = [point["x"], row["ours"]["median"]]
    for axis, figure in zip(axes, figures, strict=False):
        lines = {str(line.get_label()): line for line in axis.get_lines()}
        points = {series["name"]: series["points"] for series in figure["series"]}
        if ours in points.get(point["line"], ()):
            mark = {"at_least": "^", "at_most": "v"}.get(str(row["rule"]), "D")
            style = {"markersize": 8, "markerfacecolor": "none", "markeredgewidth": 1.5, "linestyle": "none"}
            label = None if "published" in lines else "published"
            axis.plot(point["x"], row["value"], mark, color=lines[point["line"]].get_color(), label=label, **style)
            axis.set_ylim(0, max(axis.get_ylim()[1], 1.1 * row["value"]))
            axis.legend()


def _draw_rows(axis: Any, rows: Sequence[dict[str, Any]]) -> None:
    """Draw ours over the published number, row by row. A row whose published number is 0 has its names only."""
    names = []
    for at, row in enumerate(rows):
        what, published, ours = row["cells"][:3]
        names.append(
            f"{shorten(what, 88, placeholder=' ...')}\n{shorten(published, 60, placeholder=' ...')}; ours {ours}"
        )
        if not row["value"]:
            continue
        low, median, high = sorted(row["ours"][key] / row["value"] for key in ("low", "median", "high"))
        colour = VERDICTS[row["verdict"]]
        inside = "none" if row["basis"] == "own" else colour
        axis.plot(1, at, PUBLISHED.get(str(row["rule"]), "D"), color="black", markersize=6)
        axis.plot([low, high], [at, at], color=colour)
        axis.plot(median, at, "o", color=colour, markerfacecolor=inside, markersize=5)
    left, right = axis.get_xlim()
    if left < -1 or right > 4:
        axis.set_xscale("symlog", linthresh=1)
        axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axis.set_xlim(min(left, 0), max(right, 2))
    axis.set_yticks(range(len(rows)), names, fontsize=7)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set(xlabel="ours over the published number (black; an arrow is a limit that is kept on its side)")
    axis.grid(alpha=0.3)


def _draw_lines(axis: Any, figure: dict[str, Any]) -> None:
    for series, style in zip(figure["series"], cycle(STYLES), strict=False):
        x, y = zip(*series["points"], strict=True) if series["points"] else ((), ())
        marker = "o" if len(x) <= MOST_MARKS else None
        (line,) = axis.plot(x, y, linestyle=style, marker=marker, markersize=4, label=series["name"])
        if ranges := series.get("ranges"):
            # Error bars from the least to the greatest value over seeds, through the mean.
            errors = [[max(m - low, 0) for m, (low, _) in zip(y, ranges, strict=True)]]
            errors.append([max(high - m, 0) for m, (_, high) in zip(y, ranges, strict=True)])
            axis.errorbar(x, y, yerr=errors, fmt="none", ecolor=line.get_color(), capsize=3)
    for mark in figure.get("marks", ()):
        _draw_mark(axis, mark)
    xs = [x for series in figure["series"] for x, _ in series["points"]]
    whole = all(x == int(x) for x in xs)
    if figure["log_x"]:
        axis.set_xscale("log", base=2 if whole and max(xs, default=0) > 16 else 10)
        axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    elif whole and max(xs, default=0) <= 20:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set(title=figure["title"], xlabel=figure["x"], ylabel=figure["y"])
    # Without room above, a level line would lie on the frame.
    tops = [y for series in figure["series"] for _, y in (*series["points"], *series.get("ranges", ()))]
    axis.set_ylim(0, 1.1 * max(tops, default=1.0) or 1.0)
    axis.grid(alpha=0.3)
    axis.legend()


def _draw_mark(axis: Any, mark: dict[str, Any]) -> None:
    """Shade the time over which something happened, and draw a line at its beginning."""
    right = mark["to"] if mark["to"] is not None else axis.get_xlim()[1]
    axis.axvspan(mark["from"], right, color="tab:red", alpha=0.12, linewidth=0)
    axis.axvline(mark["from"], color="tab:red", linewidth=1, linestyle="dotted", label=mark["name"])


def main(arguments: Sequence[str]) -> int:
    """Draw each JSON file as a PNG beside it; one that cannot be drawn does not keep the others from it."""
    if not arguments:
        print("usage: python -m tributary.plots FILE.json ... or -", file=sys.stderr)
        return 2
    names: Iterable[str] = map(str.rstrip, sys.stdin) if list(arguments) == ["-"] else arguments
    code = 0
    for path in map(Path, names):
        try:
            picture = draw(json.loads(path.read_text(encoding="utf-8")))
            picture.savefig(path.with_suffix(".png"), dpi=120)
        except (OSError, LookupError, ValueError) as error:
            print(f"{path} is not drawn: {error}", file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
