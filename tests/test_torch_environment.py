"""Which variables the PyTorch backend takes, ignores and refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

from tributary.torch import Options, variables

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
def test_variables_of_the_program_are_no_options(name: str) -> None:
    assert Options.from_environment({name: "1"}) == Options()
