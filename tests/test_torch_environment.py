"""Which variables the PyTorch backend takes, ignores and refuses."""

from __future__ import annotations

import os
import pwd
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

from tributary.torch import Options, job_name, variables

ROOT = Path(__file__).parent.parent

#: As `env` shows them in a pod of a namespace with a Service, behind the Service's name.
SERVICE = {
    "SERVICE_HOST": "10.96.0.7",
    "SERVICE_PORT": "17777",
    "SERVICE_PORT_HTTP": "17777",
    "PORT": "tcp://10.96.0.7:17777",
    "PORT_17777_TCP": "tcp://10.96.0.7:17777",
    "PORT_17777_TCP_PROTO": "tcp",
    "PORT_17777_TCP_PORT": "17777",
    "PORT_17777_TCP_ADDR": "10.96.0.7",
    "PORT_17777_UDP": "udp://[fd00::7]:17777",
}


@pytest.mark.parametrize("prefix", ["TRIBUTARY", "TRIBUTARY_SWITCH", "TRIBUTARY_RACK_2"])
def test_variables_that_kubernetes_makes_for_a_service_are_ignored(prefix: str) -> None:
    assert Options.from_environment({f"{prefix}_{name}": value for name, value in SERVICE.items()}) == Options()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TRIBUTARY_PORT", "17777"),
        ("TRIBUTARY_SWITCH_PORT", "17777"),
        ("TRIBUTARY_SERVICE", "tcp://10.96.0.7:17777"),
        ("TRIBUTARY_SWITHC", "10.96.0.7:17777"),
    ],
)
def test_a_persons_mistake_is_not_taken_for_a_services_variable(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"there is no variable {name}; there are TRIBUTARY_SWITCH,"):
        Options.from_environment({name: value})


def named_by_pages() -> set[str]:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*")]
    texts = [page.read_text(encoding="utf-8") for page in pages if page.is_file()]
    # A page may speak of all variables by their beginning, `TRIBUTARY_`.
    return {name for text in texts for name in re.findall(r"TRIBUTARY_[A-Z_]*[A-Z]\b(?!_)", text)}


def test_every_variable_that_a_page_names_is_known_and_every_known_one_is_on_a_page() -> None:
    of_services = {"TRIBUTARY_PORT"}
    assert named_by_pages() - of_services == variables.OF_GROUPS.keys() | variables.OF_OTHERS


@pytest.mark.parametrize("name", sorted(variables.OF_OTHERS))
def test_variables_of_the_program_change_no_options(name: str) -> None:
    assert Options.from_environment({name: "1"}) == Options()


@pytest.mark.parametrize(
    ("argv", "program"),
    [
        ("/home/alice/train.py", "train"),
        ("/usr/lib/python3/recipes/__main__.py", "recipes"),
        ("-c", "python"),
        ("", "python"),
    ],
)
def test_a_job_without_a_name_is_called_after_its_program_and_user(
    monkeypatch: pytest.MonkeyPatch, argv: str, program: str
) -> None:
    monkeypatch.setattr(sys, "argv", [argv])
    monkeypatch.setattr(pwd, "getpwuid", lambda number: SimpleNamespace(pw_name="alice"))
    assert job_name.default_job() == f"{program}-alice"


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert job_name.default_job().endswith("-4711")


def test_the_jobs_of_a_run_have_its_name_and_differ() -> None:
    assert Options.from_environment({"TRIBUTARY_JOB": "resnet-50"}).job == "resnet-50"
    names = [job_name.of_group("resnet-50", nonce, group) for nonce in ("1a", "2b") for group in ("0", "g" * 200)]
    names += [job_name.extended(names[-1], "-moves"), job_name.extended(names[0], "-moves")]
    assert len(set(names)) == len(names)
    assert all(name.startswith("resnet-50-") and len(name) <= job_name.MOST_LETTERS for name in names)


@pytest.mark.parametrize("name", ["a job", "größer", "j" * 65])
def test_a_name_that_no_job_can_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="TRIBUTARY_JOB is at most 64 letters, digits and"):
        Options(job=name)
