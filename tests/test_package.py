"""What a person is told to install: the distribution's name, which is not the import's."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tributary import sim

ROOT = Path(__file__).parent.parent

#: Endings of the files that people read, and none, as the Makefile's.
TEXT = {".md", ".py", ".rs", ".toml", ""}

#: On PyPI this name is another project's.
OLD_FORM = re.compile(r"\btributary\\?\[|pip3? install [^`\n]*\btributary(?!-ina\b)")


def test_no_document_and_no_message_names_another_projects_distribution() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    found = []
    for name in listed:
        path = ROOT / name
        if path.suffix not in TEXT or path == Path(__file__) or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if OLD_FORM.search(line):
                found.append(f"{name}:{number}: {line.strip()}")
    assert found == []


@pytest.mark.parametrize(
    ("line", "is_old"),
    [
        ("pip install 'tributary[plots]'", True),
        ("pip install tributary", True),
        ("needs `tributary[dask]`", True),
        ("pip install 'tributary-ina[plots]'", False),
        ("pip install tributary-ina", False),
        ("import tributary", False),
    ],
)
def test_the_old_form_is_known(line: str, is_old: bool) -> None:
    assert bool(OLD_FORM.search(line)) == is_old


def test_the_distribution_brings_the_package_and_the_program() -> None:
    installed = metadata.distribution("tributary-ina")
    assert {(entry.group, entry.name) for entry in installed.entry_points} == {
        ("console_scripts", "tributary"),
        ("torch.distributed.backends", "tributary"),
    }
    extras = {"bf16", "dask", "pandas", "plots", "torch"}
    assert set(installed.metadata.get_all("Provides-Extra") or ()) == extras


def test_a_picture_without_matplotlib_says_which_command_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    result = sim.run("[network]\nstar = { hosts = 3 }\n[[job]]\nprotocol = 'ring'\ntensor = '10 kB'\n")
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"] + ["tributary.plots"]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr("tributary.plots", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"matplotlib: `pip install 'tributary-ina\[plots\]'`"):
        result.plot()
