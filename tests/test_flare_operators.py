"""Operators that people write: docs/operators.md typed word by word, and what the page promises."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import program
import tributary
from tributary import Operator, _core

PAGE = Path(__file__).parent.parent / "docs" / "operators.md"


def blocks(fence: str) -> list[str]:
    """The page's blocks of one kind, in their order."""
    return re.findall(rf"^```{fence}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def together(arrays: list[Any], op: Operator, **options: Any) -> list[Any]:
    """What every rank gets, over a switch of this process."""
    results: list[Any] = [None] * len(arrays)
    with tributary.Switch("127.0.0.1:0") as switch:

        def work(rank: int) -> None:
            with tributary.connect(
                switch.address,
                job="own",
                rank=rank,
                world_size=len(arrays),
                protocol="flare",
                operators=[op],
                **options,
            ) as group:
                results[rank] = group.all_reduce(arrays[rank], op=op)

        ranks = [threading.Thread(target=work, args=(rank,)) for rank in range(len(arrays))]
        for thread in ranks:
            thread.start()
        for thread in ranks:
            thread.join()
    return results


def test_the_page_is_right_word_by_word(tmp_path: Path) -> None:
    """Its files are written, its commands typed, its code run; what it shows of their output is there."""
    first, second = blocks("expr")
    commands, texts = blocks("sh"), blocks("text")

    def typed(command: str) -> str:
        ran = subprocess.run([program.PROGRAM, *command.split()[1:]], cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 0, (command, ran.stderr)
        return ran.stdout

    (tmp_path / "loudest.expr").write_text(first)
    said = typed(commands[0].strip())
    shown = [line for line in texts[0].splitlines() if line.startswith(("operator", "order"))]
    assert all(line in said for line in shown), said
    assert re.search(r"combine\(\(v=.*\), \(v=.*\)\) is ", said), said
    (tmp_path / "loudest.expr").write_text(second)
    check, build = commands[1].strip().splitlines()
    assert texts[1].strip() in typed(check)
    typed(build)
    assert Operator.from_wasm(tmp_path / "loudest.wasm").element == "v:f32,i:i32"

    switch, *workers = commands[2].strip().splitlines()
    assert switch == "tributary switch --operators any"
    daemon = program.Daemon("--operators", "any")
    path = str(tmp_path / "loudest.expr")
    words = [
        worker.replace("127.0.0.1", daemon.address).replace("loudest.expr", path).split()[1:] for worker in workers
    ]
    for ran in program.run_all(*words):
        assert ran.returncode == 0, ran.stderr
        assert "as the same module gives on one machine" in ran.stdout
    daemon.stop()
    # A switch whose operator has not said so serves none.
    closed = program.Daemon()
    alone = [*words[0][: words[0].index("--world-size")], "--world-size", "1", "--elements", "10"]
    refused = program.sentence(program.run(*[word.replace(daemon.address, closed.address) for word in alone]))
    assert "serves no operators of jobs' own" in refused
    closed.stop()

    scope: dict[str, Any] = {}
    code = "\n".join(blocks("python")).replace('"loudest.expr"', repr(str(tmp_path / "loudest.expr")))
    exec(compile(code, str(PAGE), "exec"), scope)

    (tmp_path / "loudest.toml").write_text(blocks("toml")[0])
    simulated = typed(commands[5].strip())
    line = r"operator +loudest \w{8} of v:f32,i:i32; every result is what the module gives at home"
    assert re.search(line, simulated)

    shown_all = typed(commands[3].splitlines()[0])
    rows = re.findall(r"^\| `([\w-]+)` \| `([\w:,]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert [line.split()[:2] for line in shown_all.splitlines()] == [list(row) for row in rows]
    for command in [*commands[3].splitlines()[1:], *commands[4].splitlines()]:
        typed(command.strip())
    if shutil.which("clang") and shutil.which("wasm-ld"):
        assert "it may be used" in typed("tributary operator check greater.c")
    else:
        ran = subprocess.run(
            [program.PROGRAM, "operator", "check", "greater.c"], cwd=tmp_path, capture_output=True, text=True
        )
        assert ran.returncode == 1
        assert "C needs clang and wasm-ld" in ran.stderr or "wasm-ld" in ran.stderr, ran.stderr


def test_cycles_on_a_small_core_are_counted_where_the_tools_are(tmp_path: Path) -> None:
    file = tmp_path / "cycles.csv"
    command = ["operator", "cycles", "maxloc", "-o", str(file)]
    if shutil.which("wasm2c") and shutil.which("riscv64-unknown-elf-gcc"):
        counted = [program.last_json(program.run(*command, "--json")) for _ in range(2)]
        assert counted[0] == counted[1]
        heading, *rows = file.read_text().splitlines()
        assert heading.startswith("sha256,name,")
        assert len(rows) == 2
        assert all(row.startswith(counted[0]["sha256"]) for row in rows)
    else:
        assert "apt-get install wabt gcc-riscv64-unknown-elf" in program.sentence(program.run(*command))
        assert not file.exists()


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("maxloc", lambda r: np.array([(r.normal(), i) for i in range(999)], dtype=[("v", "f4"), ("i", "i4")])),
        ("complex-product", lambda r: (r.normal(size=999) + 1j * r.normal(size=999)).astype(np.complex64)),
        ("matrix-2x2", lambda r: r.normal(size=(333, 4)).astype(np.float32).view([(n, "f4") for n in "pqrs"])),
        ("fp8-e4m3", lambda r: r.integers(0, 256, 2001, dtype=np.uint8)),
        ("log-sum-exp", lambda r: r.normal(size=999).astype(np.float32)),
    ],
)
def test_the_network_gives_what_the_module_gives_at_home(name: str, make: Callable[[Any], Any]) -> None:
    """Bit for bit, whatever order the operator needs."""
    op = Operator.from_file(name)
    arrays = [make(np.random.default_rng(rank)) for rank in range(3)]
    expected = op.reduce(arrays)
    for result in together(arrays, op):
        assert result.dtype == arrays[0].dtype
        assert result.tobytes() == expected.tobytes()


def test_what_is_wrong_is_a_sentence() -> None:
    """Before anything is sent."""
    with pytest.raises(tributary.ConfigError, match="nothing is called c"):
        Operator.expression("a + c", dtype="f32")
    with pytest.raises(tributary.ConfigError, match="has a start function"):
        Operator.from_wat('(module (memory (export "memory") 1) (func $s) (start $s))')
    with pytest.raises(tributary.ConfigError, match="gaps"):
        Operator.expression("v = a.v", dtype=np.dtype([("v", "i1"), ("w", "f4")], align=True))
    op = Operator.expression("a ^ b", dtype="i32", name="bits")
    with pytest.raises(tributary.ConfigError, match="x has elements of f32, and bits is for i32"):
        op.reduce([np.zeros(3, np.float32)])
    other = next(protocol for protocol in _core.protocols() if not _core.takes_operators(protocol))
    with tributary.Switch("127.0.0.1:0") as switch:
        with pytest.raises(ValueError, match='takes no custom operators: take protocol="flare"'):
            tributary.connect(switch.address, job="x", rank=0, world_size=1, protocol=other, operators=[op])
        with (
            tributary.connect(switch.address, job="y", rank=0, world_size=1, protocol="flare") as group,
            pytest.raises(tributary.ConfigError, match=r"operators=\[op\]"),
        ):
            group.all_reduce(np.zeros(3, np.int32), op=op)


def test_an_operator_that_does_not_commute_is_refused_in_any_order() -> None:
    """The default has the order that it needs; who chooses less is told."""
    op = Operator.from_file("matrix-2x2")
    assert op.needs == "ranks"
    x = np.zeros(4, op.dtype)
    with (
        tributary.Switch("127.0.0.1:0") as switch,
        tributary.connect(
            switch.address,
            job="z",
            rank=0,
            world_size=1,
            protocol="flare",
            operators=[op],
            options={"reproducible": "tree"},
        ) as group,
        pytest.raises(tributary.UnsupportedError, match="choose reproducible=ranks"),
    ):
        group.all_reduce(x, op=op)
