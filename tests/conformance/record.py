"""What became of which test under which protocol: kept in a file as it comes, counted, and shown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

#: What a group takes if nobody chooses a protocol; its ranks share this host's memory.
AUTO = "auto"

#: In the order of the table.
OUTCOMES = ("passed", "skipped", "excepted", "FAILED")


@dataclass(frozen=True)
class Case:
    """A test under a protocol."""

    protocol: str
    test: str


@dataclass
class Outcome:
    """What became of it."""

    case: Case
    outcome: str
    seconds: float
    #: Why it was skipped or excepted, or how it failed.
    detail: str = ""

    def line(self) -> str:
        """The outcome for people."""
        return f"{self.outcome:8} {self.seconds:5.1f} s  {self.case.protocol:8}  {self.case.test}  {self.detail}"

    def excepted(self, reasons: Mapping[Case, str]) -> Outcome:
        """As it counts: a failure with a written reason is an exception, and an exception that passes fails."""
        reason = reasons.get(self.case)
        if reason is None or self.outcome == "skipped":
            return self
        if self.outcome == "passed":
            return Outcome(self.case, "FAILED", self.seconds, "it passes: take its line out of exceptions.txt")
        return Outcome(self.case, "excepted", self.seconds, reason)


def exceptions(text: str, protocols: Iterable[str]) -> dict[Case, str]:
    """The tests that fail for a reason that is written down, by protocol.

    A line is "test: reason" for all protocols, "test [one, another]: reason" for these, and "test [not one]: reason"
    for the others.
    """
    known = list(protocols)
    found: dict[Case, str] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        subject, colon, reason = line.partition(":")
        test, bracket, named = subject.partition(" [")
        which = known
        if bracket:
            words = named.removesuffix("]").removeprefix("not ")
            listed = {word.strip() for word in words.split(",")}
            if not named.endswith("]") or listed - set(known):
                raise ValueError(f"exceptions.txt: no list of protocols: {line}")
            which = [name for name in known if (name in listed) is not named.startswith("not ")]
        if not colon or not reason.strip():
            raise ValueError(f"exceptions.txt: a test without a reason: {line}")
        found |= {Case(protocol, test.strip()): reason.strip() for protocol in which}
    return found


class Record:
    """A file of outcomes, a line each, behind a line that says of what."""

    def __init__(self, path: Path, subject: Mapping[str, Any]) -> None:
        self._path = path
        self.subject = subject
        #: In the order in which tests ended.
        self.outcomes: list[Outcome] = []

    @staticmethod
    def open(path: Path, subject: Mapping[str, Any], resume: bool) -> Record:
        """Begin a file, or go on with one of the same subject: what passed or was skipped there is done."""
        done: list[Outcome] = []
        if resume and path.exists():
            former, *lines = path.read_text().splitlines() or ["{}"]
            if json.loads(former) != subject:
                raise ValueError(f"{path} is of something else, {former}, and not of {json.dumps(subject)}")
            done = [outcome for outcome in _outcomes(lines) if outcome.outcome in ("passed", "skipped")]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(subject) + "\n")
        record = Record(path, subject)
        for outcome in done:
            record.add(outcome)
        return record

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome."""
        self.outcomes.append(outcome)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")

    def counts(self) -> dict[str, Counter[str]]:
        """By protocol, how many have come to what."""
        counts: dict[str, Counter[str]] = {}
        for outcome in self.outcomes:
            counts.setdefault(outcome.case.protocol, Counter())[outcome.outcome] += 1
        return counts

    def table(self) -> str:
        """The counts for people."""
        rows = [["protocol", *OUTCOMES, "seconds of tests"]]
        for protocol, counts in self.counts().items():
            seconds = sum(outcome.seconds for outcome in self.outcomes if outcome.case.protocol == protocol)
            rows.append([protocol, *(str(counts[outcome]) for outcome in OUTCOMES), f"{seconds:.0f}"])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(word.rjust(width) for word, width in zip(row, widths, strict=True)) for row in rows)

    def summary(self) -> dict[str, Any]:
        """Everything, for programs."""
        tests = [
            {"protocol": outcome.case.protocol, "test": outcome.case.test, "outcome": outcome.outcome}
            | {"seconds": round(outcome.seconds, 3), "detail": outcome.detail}
            for outcome in self.outcomes
        ]
        return {
            **self.subject,
            "counts": {name: dict(counts) for name, counts in self.counts().items()},
            "tests": tests,
        }


def _outcomes(lines: Iterable[str]) -> Iterator[Outcome]:
    """What lines say; the last one may have been cut short."""
    for line in lines:
        try:
            fields = json.loads(line)
        except json.JSONDecodeError:
            return
        yield Outcome(Case(**fields.pop("case")), **fields)
