"""Pictures of what `tributary reproduce --out` and `tributary sim run --plot` have written.

>>> python -m tributary.plots figures/switchml-fig6.json

writes `figures/switchml-fig6.png`. Needs matplotlib: `pip install 'tributary-ina[plots]'`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

#: Lines with more points are drawn without marks.
MOST_MARKS = 40

#: Styles that keep lines visible that lie on each other.
STYLES = ("solid", "dashed", "dashdot", "dotted")

#: How many figures stand side by side; more figures go below.
COLUMNS = 3


def draw(outcome: dict[str, Any]) -> Figure:
    """Draw the figures of one experiment, as its JSON describes them."""
    if not outcome["figures"]:
        raise ValueError(f"{outcome['id']} has no figures")
    quick = " (small inputs)" if outcome["quick"] else ""
    return draw_figures(outcome["figures"], f"{outcome['id']}: {outcome['title']}{quick}")


def draw_figures(figures: Sequence[dict[str, Any]], title: str) -> Figure:
    """Draw figures side by side under a title; four of them two by two."""
    if not figures:
        raise ValueError("there is nothing to draw")
    columns = 2 if len(figures) == 4 else min(len(figures), COLUMNS)
    rows = -(-len(figures) // columns)
    picture = Figure(figsize=(6.0 * columns, 4.0 * rows), layout="constrained")
    axes = picture.subplots(rows, columns, squeeze=False).flatten()
    for axis, figure in zip(axes, figures, strict=False):
        _draw_lines(axis, figure)
    for axis in axes[len(figures) :]:
        axis.set_axis_off()
    picture.suptitle(title)
    return picture


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
    """Draw each JSON file as a PNG beside it."""
    if not arguments:
        print("usage: python -m tributary.plots FILE.json ...", file=sys.stderr)
        return 2
    for name in arguments:
        path = Path(name)
        picture = draw(json.loads(path.read_text(encoding="utf-8")))
        picture.savefig(path.with_suffix(".png"), dpi=120)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
