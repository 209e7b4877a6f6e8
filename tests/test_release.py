"""`scripts/release`, in a small repository of its own: it refuses what is not ready, and publishes nothing."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts/release"

NOTES = "\n### Added\n\n- Sums.\n\n"

#: Its targets make what the real ones leave behind, of a moment.
MAKEFILE = """
test:
\t@echo tested >> ../order
wheel:
\t@mkdir -p dist; echo wheel > dist/tributary_ina-1.2.3-abi3.whl
	@echo sdist > dist/tributary_ina-1.2.3.tar.gz
static:
\t@echo program > dist/tributary
docs:
\t@mkdir -p target/site; echo page > target/site/index.html
"""


def git(repository: Path, *words: str) -> str:
    settings = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *settings, *words], cwd=repository, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    for file, text in {
        "Cargo.toml": '[workspace.package]\nversion = "1.2.3"\n\n[workspace.dependencies]\nother = "1"\n',
        "pyproject.toml": '[project]\nname = "tributary-ina"\ndynamic = ["version"]\n',
        "crates/python/Cargo.toml": "[package]\nversion.workspace = true\n",
        "CHANGELOG.md": f"# Changelog\n\n## 1.2.3 - 2026-03-01\n{NOTES}## 1.2.2 - 2026-02-01\n\n- Less.\n",
        "Makefile": MAKEFILE,
        ".gitignore": "/dist\n/target\n",
    }.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    (root / "scripts").mkdir()
    shutil.copy(SCRIPT, root / "scripts/release")
    git(root, "init", "--quiet")
    commit(root)
    return root


def commit(repository: Path) -> None:
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "all")


def release(repository: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(repository / "scripts/release"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def refusal(repository: Path, *words: str) -> str:
    """The one sentence of a release that is not ready."""
    ran = release(repository, *words)
    (line,) = ran.stderr.splitlines()
    assert (ran.returncode, ran.stdout) == (1, "")
    assert not (repository / "dist").exists()
    return line.removeprefix("release: ")


def test_what_is_ready_is_built_with_checksums_and_notes_and_nothing_is_published(repository: Path) -> None:
    ran = release(repository, "1.2.3")
    assert ran.returncode == 0, ran.stderr
    built = repository / "dist/1.2.3"
    assert (built / "notes.md").read_text().strip() == NOTES.strip()
    sums = {line[68:]: line[:64] for line in (built / "SHA256SUMS").read_text().splitlines()}
    assert {name: hashlib.sha256((built / name).read_bytes()).hexdigest() for name in sums} == sums
    assert sorted(sums) == sorted(file.name for file in built.iterdir() if file.name != "SHA256SUMS")
    assert {"tributary", "tributary_ina-1.2.3.tar.gz", "tributary-1.2.3-site.tar.gz"} <= set(sums)
    assert (repository.parent / "order").read_text() == "tested\n"
    assert "git tag --annotate v1.2.3" in ran.stdout
    assert git(repository, "tag") == ""


def test_a_check_builds_nothing(repository: Path) -> None:
    ran = release(repository, "1.2.3", "--check")
    assert (ran.returncode, ran.stdout) == (0, "release: 1.2.3 can be built\n")
    assert not (repository / "dist").exists()


def test_a_tree_with_changes_is_refused(repository: Path) -> None:
    (repository / "new").touch()
    assert refusal(repository, "1.2.3") == "the tree has changes that are not committed (git status)"


@pytest.mark.parametrize("version", ["1.2", "v1.2.3", "1.2.3-rc1", "latest"])
def test_what_is_not_a_version_is_refused(repository: Path, version: str) -> None:
    assert refusal(repository, version).startswith(f"'{version}' is not a version")


def test_a_version_that_is_tagged_is_refused(repository: Path) -> None:
    git(repository, "tag", "v1.2.3")
    assert refusal(repository, "1.2.3") == "there is a tag v1.2.3 already"


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        ("Cargo.toml", "1.2.3", "1.2.4", "Cargo.toml says version 1.2.4 and not 1.2.3"),
        ("pyproject.toml", "dynamic", "version", "pyproject.toml has a version of its own"),
        ("crates/python/Cargo.toml", ".workspace = true", ' = "1.2.3"', "crates/python/Cargo.toml has a version"),
        ("CHANGELOG.md", "1.2.3 - 2026-03-01", "Unreleased", "the first section of CHANGELOG.md is '## Unreleased'"),
        ("CHANGELOG.md", "1.2.3 - 2026-03-01", "1.2.3", "the first section of CHANGELOG.md is '## 1.2.3'"),
        ("CHANGELOG.md", NOTES, "\n", "CHANGELOG.md says nothing of 1.2.3"),
    ],
)  # fmt: skip
def test_files_that_disagree_are_named(repository: Path, file: str, old: str, new: str, sentence: str) -> None:
    path = repository / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    commit(repository)
    assert refusal(repository, "1.2.3").startswith(sentence)
