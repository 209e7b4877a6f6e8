"""Pictures of what `tributary reproduce --out` has written.

>>> python -m tributary.plots figures/switchml-fig6.json

writes `figures/switchml-fig6.png`. Needs matplotlib: `pip install 'tributary[plots]'`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


def draw(outcome: dict[str, Any]) -> Figure:
    """Draw the figures of one experiment side by side, as its JSON describes them."""
    figures = outcome["figures"]
    if not figures:
        raise ValueError(f"{outcome['id']} has no figures")
    picture = Figure(figsize=(6.0 * len(figures), 4.0))
    axes = picture.subplots(1, len(figures), squeeze=False)
    for axis, figure in zip(axes[0], figures, strict=True):
        for series in figure["series"]:
            x, y = zip(*series["points"], strict=True) if series["points"] else ((), ())
            axis.plot(x, y, marker="o", markersize=4, label=series["name"])
        if figure["log_x"]:
            axis.set_xscale("log", base=2 if max_x(figure) > 16 else 10)
        axis.set(title=figure["title"], xlabel=figure["x"], ylabel=figure["y"])
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend()
    quick = " (small inputs)" if outcome["quick"] else ""
    picture.suptitle(f"{outcome['id']}: {outcome['title']}{quick}")
    picture.tight_layout()
    return picture


def max_x(figure: dict[str, Any]) -> float:
    """Give the largest x of a figure."""
    return max((x for series in figure["series"] for x, _ in series["points"]), default=0.0)


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
