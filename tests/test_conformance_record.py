"""What the runner of PyTorch's conformance suite keeps, counts and excepts; nothing here needs PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from record import Case, Outcome, Record, exceptions

FOLDER = Path(__file__).parent / "conformance"
SUBJECT = {"backend": "ours", "world_size": 3}


def outcome(test: str, of: str, protocol: str = "one") -> Outcome:
    return Outcome(Case(protocol, test), of, 0.5, "a reason")


def test_exceptions_are_of_all_protocols_of_some_or_of_the_others() -> None:
    text = "# a comment\n\nfirst: it is so\nsecond [one, two]: they cannot\nthird [not one]: others cannot\n"
    found = exceptions(text, ["one", "two", "three"])
    assert {case.protocol for case in found if case.test == "first"} == {"one", "two", "three"}
    assert {case.protocol for case in found if case.test == "second"} == {"one", "two"}
    assert {case.protocol for case in found if case.test == "third"} == {"two", "three"}
    assert found[Case("two", "second")] == "they cannot"


@pytest.mark.parametrize("line", ["test", "test:", "test [four]: no such protocol", "test [one: no end"])
def test_an_exception_that_says_nothing_or_of_nobody_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match=r"exceptions\.txt"):
        exceptions(line, ["one", "two"])


def test_a_failure_with_a_reason_is_an_exception_and_an_exception_that_passes_fails() -> None:
    reasons = {Case("one", "told"): "it is so"}
    assert outcome("told", "FAILED").excepted(reasons).outcome == "excepted"
    assert outcome("told", "FAILED").excepted(reasons).detail == "it is so"
    assert outcome("told", "FAILED", "two").excepted(reasons).outcome == "FAILED"
    assert outcome("other", "FAILED").excepted(reasons).outcome == "FAILED"
    assert outcome("told", "passed").excepted(reasons).outcome == "FAILED"
    assert outcome("told", "skipped").excepted(reasons).outcome == "skipped"


def test_the_exceptions_of_the_suite_name_protocols_that_there_are() -> None:
    from tributary import _core

    found = exceptions((FOLDER / "exceptions.txt").read_text(), ["auto", *_core.protocols()])
    assert Case("auto", "test_sparse_all_reduce_sum") in found


def test_a_run_that_was_stopped_goes_on_with_what_has_neither_passed_nor_been_skipped(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "record"
    record = Record.open(path, SUBJECT, resume=False)
    for test, of in (("a", "passed"), ("b", "FAILED"), ("c", "skipped"), ("d", "excepted")):
        record.add(outcome(test, of))
    with path.open("a") as file:
        file.write('{"case": {"protocol": "one", "te')
    again = Record.open(path, SUBJECT, resume=True)
    assert [(each.case.test, each.outcome, each.seconds) for each in again.outcomes] == [
        ("a", "passed", 0.5),
        ("c", "skipped", 0.5),
    ]
    with pytest.raises(ValueError, match="of something else"):
        Record.open(path, SUBJECT | {"world_size": 4}, resume=True)
    assert Record.open(path, SUBJECT | {"world_size": 4}, resume=False).outcomes == []


def test_the_table_and_the_json_count_by_protocol(tmp_path: Path) -> None:
    record = Record.open(tmp_path / "record", SUBJECT, resume=False)
    for test, of, protocol in (("a", "passed", "one"), ("b", "FAILED", "one"), ("a", "passed", "two")):
        record.add(outcome(test, of, protocol))
    assert [row.split() for row in record.table().splitlines()[1:]] == [
        ["one", "1", "0", "0", "1", "1"],
        ["two", "1", "0", "0", "0", "0"],
    ]
    assert record.summary()["counts"] == {"one": {"passed": 1, "FAILED": 1}, "two": {"passed": 1}}


LANES = r"""
import json, sys
from lanes import run_all
from record import Case, Outcome

def run(case):
    if case.test == "ends":
        sys.exit(7)
    if case.test == "fails":
        print("the ranks' own words", flush=True)
        return Outcome(case, "FAILED", 0.0, "and the cause\n")
    return Outcome(case, "passed", 0.0)

cases = [Case(str(number), name) for number, name in enumerate(sys.argv[1:])]
for outcome in run_all(cases, run, 3):
    print(json.dumps([outcome.case.protocol, outcome.case.test, outcome.outcome, outcome.detail]))
"""


def test_lanes_run_every_test_and_go_on_after_one_that_ends_their_process() -> None:
    names = ["a", "ends", "b", "fails", "c", "ends", "d", "e"]
    program = [sys.executable, "-c", LANES, *names]
    ran = subprocess.run(
        program, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": str(FOLDER)}
    )
    assert ran.returncode == 0, ran.stderr
    outcomes = [json.loads(line) for line in ran.stdout.splitlines()]
    assert sorted(outcomes)[0] == ["0", "a", "passed", ""]
    assert [name for _, name, _, _ in sorted(outcomes)] == names
    details = {name: detail for _, name, outcome, detail in outcomes if outcome == "FAILED"}
    assert details["ends"].startswith("its process ended with 7")
    assert details["fails"] == "and the cause\nthe ranks' own words\n"
    assert len(details) == 2
