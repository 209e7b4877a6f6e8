"""The study of protocols beside flows, on a small network: what it writes, and what it counts."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("matplotlib")

SCRIPT = Path(__file__).parent.parent / "experiments/transports/__main__.py"


@pytest.fixture(scope="module")
def study() -> ModuleType:
    spec = importlib.util.spec_from_file_location("transports_study", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_small_study_draws_its_page(study: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summing = next(iter(study.COLLECTIVES))
    words = ["--quick", "--protocols", summing, "--transports", "dctcp", "dcqcn, go-back-N", "--loads", "0", "80"]
    assert study.main([*words, "--out", str(tmp_path)]) == 0
    assert "6 runs in" in capsys.readouterr().out
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "results.csv").open() as file:
        rows = {(row["protocol"], row["transport"], row["load_percent"]): row for row in csv.DictReader(file)}
    for transport in ("dctcp", "dcqcn, go-back-N"):
        alone, beside = rows[study.ALONE, transport, "80"], rows[summing, transport, "80"]
        # The job takes no host and no flow from its neighbours.
        assert alone["flows"] == beside["flows"] != "0"
        assert float(beside["p99_slowdown"]) > float(beside["p50_slowdown"]) > 1
        assert float(rows[summing, "dctcp", "0"]["goodput_gbps"]) > float(beside["goodput_gbps"]) > 0
    # Loads are those of one transport; the others run at the greatest.
    assert rows[summing, "dctcp", "0"]["flows"] == "0"
    assert (summing, "dcqcn, go-back-N", "0") not in rows


def test_what_is_summed_after_the_last_flow_does_not_count(study: ModuleType) -> None:
    bits = 8 * study.TENSOR_BYTES
    beside = [{"start": 0.0, "end": 0.01}, {"start": 0.01, "end": 0.04}]
    after = {"start": study.UNTIL_S, "end": study.UNTIL_S + 0.001}
    assert study.goodput_gbps([*beside, after]) == pytest.approx(2 * bits / 0.04 / 1e9)
    # One that did not end has no time, and a job that ended none no goodput.
    assert study.goodput_gbps([*beside, {"start": 0.015, "end": None}]) == study.goodput_gbps(beside)
    assert str(study.goodput_gbps([{"start": 0.0, "end": None}])) == "nan"
