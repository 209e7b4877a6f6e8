"""When a soak was flat. Only the second half of the time counts: the first is the warm-up.

What is measured is put into windows of equal length, and each window has one value: the median, or the least where jobs
that come and go make the rest. Growth is the median of the slopes of all pairs of windows (Theil and Sen's line, which
single windows do not bend) times the length of the half.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

Points = Sequence[Sequence[float]]

#: Windows of the second half.
WINDOWS = 20


class Rule(NamedTuple):
    """How much more of something there may be at the end."""

    #: The series that it is about.
    name: str
    unit: str
    #: What stands for a window.
    value: Callable[[Sequence[float]], float]
    #: Growth over the second half: a share of the median, or so much, whichever is more.
    share: float
    least: float


#: A soak of fewer seconds says nothing about growth: half of it is too short for a warm-up, and its windows have no
#: floor between jobs.
SHORTEST_S = 1200.0

#: Memory may grow by what an allocator's pages do. Descriptors and memory of jobs have a floor between jobs, which may
#: not rise. A rank's descriptors fall while it connects again: their ceiling may not rise.
#: Latency is that of processes that share processors with everything else.
RULES = (
    Rule("memory of the switch", "MiB", statistics.median, 0.02, 1.0),
    Rule("memory of a rank", "MiB", statistics.median, 0.02, 2.0),
    Rule("memory of the newest program", "MiB", statistics.median, 0.02, 1.0),
    Rule("descriptors of the switch", "", min, 0.0, 0.9),
    Rule("descriptors of the newest program", "", min, 0.0, 0.9),
    Rule("threads of the switch", "", min, 0.0, 0.9),
    Rule("threads of the newest program", "", min, 0.0, 0.9),
    Rule("descriptors of a rank", "", max, 0.0, 0.9),
    Rule("threads of a rank", "", max, 0.0, 0.9),
    Rule("memory that jobs hold", "MiB", min, 0.0, 0.01),
    Rule("shared slots that jobs hold", "", min, 0.0, 0.9),
    Rule("operators that jobs use", "", min, 0.0, 0.9),
    Rule("latency", "ms", statistics.median, 0.5, 5.0),
)


def windows(points: Points, value: Callable[[Sequence[float]], float]) -> list[tuple[float, float]]:
    """The values of the second half's windows, each at the middle of its times."""
    if not points:
        return []
    begin = (points[0][0] + points[-1][0]) / 2
    length = (points[-1][0] - begin) / WINDOWS or 1.0
    rows: dict[int, list[Sequence[float]]] = {}
    for point in points:
        if point[0] >= begin:
            rows.setdefault(min(int((point[0] - begin) / length), WINDOWS - 1), []).append(point)
    return [(begin + (at + 0.5) * length, value([y for _, y in row])) for at, row in sorted(rows.items())]


def growth(points: Points, value: Callable[[Sequence[float]], float]) -> float:
    """How much more there is at the end of the second half than at its begin, by Theil and Sen's line."""
    values = windows(points, value)
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(values, 2)]
    return statistics.median(slopes) * (points[-1][0] - points[0][0]) / 2 if slopes else 0.0


def judge_one(rule: Rule, points: Points, seconds: float) -> dict[str, Any]:
    """Whether one series is flat."""
    if seconds < SHORTEST_S:
        return {"name": rule.name, "flat": True, "sentence": f"not judged in less than {SHORTEST_S / 60:.0f} minutes"}
    values = [y for _, y in windows(points, rule.value)]
    if len(values) < 2:
        return {"name": rule.name, "flat": False, "sentence": "too little was measured"}
    grown, middle = growth(points, rule.value), statistics.median(values)
    most = max(rule.share * middle, rule.least)
    unit = f" {rule.unit}" if rule.unit else ""
    sentence = f"{middle:.2f}{unit}, {grown:+.3f}{unit} over the second half; {most:.2f}{unit} at most"
    return {"name": rule.name, "flat": grown <= most, "sentence": sentence}


def judge(seen: dict[str, Any]) -> list[dict[str, Any]]:
    """Every rule on every series that it is about."""
    return [judge_one(rule, seen["series"].get(rule.name, []), seen["seconds"]) for rule in RULES]


def figures(seen: dict[str, Any]) -> list[dict[str, Any]]:
    """The series as figures, as `tributary.plots` draws them, over hours."""
    kinds: dict[str, list[str]] = {}
    for rule in RULES:
        kinds.setdefault(f"{rule.name.split(' of ')[0].split(' that ')[0]} {rule.unit}".strip(), []).append(rule.name)
    return [
        {"title": kind, "x": "hours", "y": kind, "log_x": False, "series": [line(seen, name) for name in names]}
        for kind, names in kinds.items()
    ]


def line(seen: dict[str, Any], name: str) -> dict[str, Any]:
    """A series whose points are few enough to be seen."""
    points = seen["series"][name]
    step = max(len(points) // 1000, 1)
    return {"name": name, "points": [(at / 3600, y) for at, y in points[::step]]}
