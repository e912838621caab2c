"""Random scans: what is drawn, how many bytes move, that wrong results are noticed, and the report on a sample."""

from __future__ import annotations

import ctypes
import hashlib
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_cases import H200, HOST

import benchmarks.__main__ as main
from benchmarks import distribution, sample
from cuscan.bench import gather
from cuscan.bench import measure as measuring
from cuscan.bench.buffers import Buffers, make_buffers, untouched_buffers
from cuscan.bench.cases import Case
from cuscan.bench.kernel import plan_of
from cuscan.bench.layouts import Layout, has_gaps, touched_bytes
from cuscan.bench.measure import measure
from cuscan.bench.ours import run_cuscan

TINY = (1 << 11, 1 << 13)
DRAWN = sample.sample(0)

# ---- what is drawn ---------------------------------------------------------------------------------------------------


def test_the_generator_is_frozen() -> None:
    names = "\n".join(case.name for seed in (0, 1) for case in sample.sample(seed))
    assert hashlib.sha256(names.encode()).hexdigest()[:16] == "93f1c6d11a216f64", (
        "other scans are drawn than before: measure the library with the old and with the new ones, and say so"
    )


def test_a_larger_sample_begins_as_a_smaller_one() -> None:
    assert sample.sample(0, 30) == DRAWN[:30]
    assert sample.sample(1, 30) != DRAWN[:30]


def test_seeds_come_from_the_commit() -> None:
    assert sample.seeds_of("abc") == sample.seeds_of("abc") != sample.seeds_of("abd")
    assert len(set(sample.seeds_of("abc"))) == 3
    begun = [{"group": "sample", "label": f"{seed:08x}/000", "commit": "abc"} for seed in (5, 7, 5)]
    assert sample.seeds_seen([*begun, {"group": "rows", "label": ""}]) == [5, 7]  # seeds that were given explicitly


def test_a_measurement_that_was_stopped_goes_on_with_all_seeds_of_its_commit() -> None:
    first, *rest = sample.seeds_of("abc")
    assert sample.seeds_seen([{"group": "sample", "label": f"{first:08x}/000", "commit": "abc"}]) == [first, *rest]


def test_every_scan_moves_what_it_is_to_move() -> None:
    for case in DRAWN:
        assert 64 << 20 <= sample.moved_bytes(case) <= 2 << 30, case.name
        assert case.shape[case.axis] > 1


def test_the_shares_of_what_is_drawn() -> None:
    of = Counter(name for case in DRAWN for name in _traits(case))
    assert of["plain"] == 134 and of["turned"] == 62
    assert 150 < of["float32"] + of["bfloat16"] < 300 and all(of[dtype] for dtype in sample.EVERY)
    assert all(60 < of[f"{ndim} dimensions"] < 140 for ndim in (1, 2, 3, 4))
    assert 200 < of["contiguous"] < 320 and min(of["sliced"], of["stepped"], of["transposed"], of["misaligned"]) > 8
    assert 140 < of["new result"] < 240
    assert not [case for case in DRAWN if case.view.order == tuple(range(len(case.shape)))]
    sizes = [sample.moved_bytes(case) for case in DRAWN]
    quartiles = np.quantile(sizes, [0.25, 0.5, 0.75]) / (64 << 20)
    assert np.allclose(np.log2(quartiles), [1.25, 2.5, 3.75], atol=0.5)  # log-uniform between 1 and 32


def _traits(case: Case) -> list[str]:
    view = case.view
    kind = (
        "transposed" if view.order else "misaligned" if view.shift else
        "stepped" if view.steps else "sliced" if view.ahead else "contiguous"
    )  # fmt: skip
    called = (case.op, case.features, case.decay)
    plain = ["plain"] if called == ("add", [], "full") else []
    return [
        case.dtype, f"{len(case.shape)} dimensions", kind, *plain,
        *["turned"] * case.transposing, *["new result"] * case.fresh,
    ]  # fmt: skip


def test_every_call_is_drawn() -> None:
    drawn = [case for seed in (0, 1, 2) for case in sample.sample(seed)]
    for call, _ in sample.CALLS:
        assert any(all(getattr(case, name) == value for name, value in call.items()) for case in drawn), call
    assert {case.result_dtype.name == case.dtype for case in drawn if case.dtype in sample.INTEGERS} == {True, False}


def test_every_scan_has_a_plan_and_goes_through_json() -> None:
    for case in DRAWN:
        assert plan_of(case, H200).grid > 0
        assert Case.from_json(json.loads(json.dumps(case.as_json()))) == case


def test_transposing_is_a_result_with_another_fast_axis() -> None:
    assert not Case((8, 9)).transposing
    assert Case((8, 9), out=Layout(order=(1, 0))).transposing
    assert not Case((8, 9), view=Layout(order=(1, 0)), out=Layout(order=(1, 0))).transposing
    assert not Case((8, 1, 9), out=Layout(order=(1, 0, 2))).transposing
    assert not Case((8, 9, 1), out=Layout(order=(0, 2, 1))).transposing  # an axis of size 1 has no neighbours


# ---- bytes that scans move -------------------------------------------------------------------------------------------


def test_bytes_of_layouts_decays_and_flags() -> None:
    def moved(*arguments: Any, **fields: Any) -> int:
        case = Case(*arguments, **fields)
        assert make_buffers(case, HOST).nbytes == untouched_buffers(case).nbytes
        return sample.moved_bytes(case)

    recurrence = {"op": "linear_recurrence", "axis": 1}
    assert moved((10, 100), **recurrence) == 1000 * 12
    assert moved((10, 100), **recurrence, decay="broadcast") == 1000 * 8 + 10 * 4
    assert moved((10, 100), **recurrence, decay="scalar") == 1000 * 8 + 4
    assert moved((10, 100), segments="reset", split="8 even", full_reset=True) == 1000 * 9
    assert moved((10, 100), segments="offsets", split="8 even") == 1000 * 8 + 9 * 4
    assert moved((10, 100), view=Layout(ahead=(0, 3), behind=(0, 5))) == 1000 * 8
    assert moved((10, 100), view=Layout(steps=(1, 3))) == 1000 * (12 + 4)  # every sector that is read counts as a whole
    assert moved((10, 100), view=Layout(steps=(3, 1))) == 1000 * 8
    assert moved((1000,), dtype="uint8", masked=True, fresh=True) == 1000 * (1 + 1 + 8)


def test_layouts() -> None:
    x = Layout(order=(1, 0), ahead=(1, 2), behind=(0, 3), shift=5).of((3, 4), np, np.arange)
    assert x[0, 0] == 5 + 2 * 4 + 1 and x.strides == (8, 4 * 8) and x.shape == (3, 4)
    assert Layout(steps=(1, -1)).of((2, 3), np, np.arange).tolist() == [[2, 1, 0], [5, 4, 3]]
    assert str(Layout(order=(2, 0, 1), ahead=(0, 3, 0), shift=3)) == "x.transpose(1, 2, 0)[:, 3:, :] shifted by 3"


def test_gaps() -> None:
    x = np.zeros((8, 16, 4), np.float32)
    dense = [x, x.T, x[1:], x[::-1], x[0], np.broadcast_to(x[0], (3, 16, 4))]
    assert not any(map(has_gaps, dense))
    assert all(map(has_gaps, [x[:, 1:], x[:, :1], x[..., ::2], x[:, :, :1], x[::2], x.T[1:]]))


# ---- a copy of a layout with gaps ------------------------------------------------------------------------------------


def test_pieces_are_as_few_and_as_wide_as_they_can_be() -> None:
    of = gather.pieces_of
    assert of((10, 100), (512, 4), 4, 256) == ((10, 25), (512, 16), 16)
    assert of((10, 100), (512, 4), 4, 260) == ((10, 100), (512, 4), 4)
    assert of((10, 99), (512, 4), 4, 256) == ((10, 99), (512, 4), 4)
    assert of((10, 20, 64), (20 * 80, 80, 1), 1, 256) == ((200, 4), (80, 16), 16)
    assert of((64, 1, 10), (2, 7, 256), 2, 0) == ((10, 8), (256, 16), 16)
    assert of((50,), (12,), 4, 0) == ((50,), (12,), 4)


@pytest.mark.parametrize(
    "view",
    [lambda x: x[:, 1:-2], lambda x: x[:, :, ::3], lambda x: x.transpose(2, 0, 1)[:, 1:4], lambda x: x[:, 4:12, :8]],
    ids=["sliced", "stepped", "transposed", "wide"],
)
def test_the_copy_of_a_layout(view: Callable[[Any], Any], tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++, which compiles the kernel for the CPU, is missing")
    x = view(np.random.default_rng(0).integers(0, 1 << 16, (5, 14, 24)).astype(np.uint16))
    pieces = gather.pieces_of(x.shape, x.strides, x.itemsize, x.ctypes.data)
    around = """
        struct Index { unsigned x; };
        static Index blockIdx, blockDim, threadIdx;
        struct uint2 { unsigned x, y; };
        struct uint4 { unsigned x, y, z, w; };
        #define __device__
        #define __global__
        %s
        extern "C" void run(const char* source, void* target, unsigned grid, unsigned block) {
            blockDim.x = block;
            for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x)
                for (threadIdx.x = 0; threadIdx.x < block; ++threadIdx.x)
                    cuscan_bench_gather(source, static_cast<Unit*>(target));
        }
    """
    (tmp_path / "gather.cpp").write_text(around % pieces.source)
    library = tmp_path / "gather.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "gather.cpp"], check=True, timeout=60)
    got = np.zeros(x.size, x.dtype)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, got)]
    ctypes.CDLL(str(library)).run(*pointers, pieces.grid, gather.BLOCK)
    in_memory_order = x.transpose(np.argsort([-abs(step) for step in x.strides], kind="stable"))
    np.testing.assert_array_equal(got, in_memory_order.reshape(-1))


# ---- the whole path --------------------------------------------------------------------------------------------------


def _planted(case: Case, buffers: Buffers) -> Callable[[], Any]:
    """A scan whose last element is wrong: by one bit or, where a tolerance allows for that, NaN."""
    run = run_cuscan(case, buffers)

    def wrong() -> Any:
        result = run()
        out = (result if isinstance(result, tuple) else (result,))[-1]
        place, bits = (-1,) * out.ndim, out.view(f"u{out.dtype.itemsize}")
        bits[place] = bits[place] ^ 1 if out.dtype.kind in "bui" else np.iinfo(bits.dtype).max
        return result

    return wrong


ONE_OF_A_KIND = list(
    {(case.op, tuple(case.features), case.decay, case.fresh): case for case in sample.sample(0, 120, TINY)}.values()
)


@pytest.mark.parametrize("case", ONE_OF_A_KIND[:40], ids=lambda case: case.name)
def test_a_planted_mistake_is_noticed(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuscan.bench.timing.SAMPLES", 1)
    *_, (_, record) = measure(case, HOST, [])
    assert "error" not in record, record
    assert record["value"] == pytest.approx(
        (record["copy"]["median_us"] + 4) / record["time"]["median_us"], rel=1e-2, abs=1e-3
    )
    monkeypatch.setattr(measuring, "run_cuscan", _planted)
    *_, (_, record) = measure(case, HOST, [])
    assert record["error"].startswith("WrongResultError"), record


def test_views_with_gaps_are_held_against_a_copy_of_their_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    original = type(HOST).gather
    monkeypatch.setattr(
        type(HOST), "gather", lambda self, view, n: asked.append((touched_bytes(view), n)) or original(self, view, n)
    )
    for view, how in ((Layout(), "sample"), (Layout(behind=(0, 3)), "stream"), (Layout(behind=(0, 3)), "sample")):
        *_, (_, record) = measure(Case((10, 100), axis=1, view=view, how=how), HOST, [])
        assert "error" not in record
    assert asked == [(4000, 8000)]


def test_a_sample_from_the_command_to_the_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich", reason="rich is not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.setattr(main, "QUICK_ELEMENTS", {False: TINY[1]})
    command = ["benchmarks", "--quick", "--group", "sample", "--cases", "7", "--results", str(tmp_path)]

    def run(*options: str) -> list[dict[str, Any]]:
        monkeypatch.setattr(sys, "argv", [*command, *options])
        assert main.main() == 0
        (path,) = tmp_path.glob("*.json")
        records: list[dict[str, Any]] = json.loads(path.read_text())["records"]
        assert all("error" not in record for record in records)
        return records

    first = run("--seed", "5", "--seed", "6", "--against", "none")
    assert [record["label"] for record in first] == [f"{seed:08x}/{i:03d}" for seed in (5, 6) for i in range(7)]
    assert all(record["code"] and record["measured"] == "after other work" for record in first)
    assert f"--seed 5 --cell {first[3]['label']}:" in first[3]["command"]
    assert run("--resume", "--against", "none") == first  # the same seeds; nothing is left to measure
    assert list(tmp_path.glob("*-sample.svg"))
    text = distribution.section(first)
    assert text.startswith("seed 5: 7 scans; seed 6: 7 scans.")


# ---- the report on a sample ------------------------------------------------------------------------------------------


def record_of(value: float, seed: int = 5, **fields: Any) -> dict[str, Any]:
    time = {"median_us": 100.0}
    return {
        "name": f"scan at {value}", "label": f"{seed:08x}/000", "value": value, "peers": {}, "op": "add",
        "dtype": "float32", "transposing": False, "axis": 1, "shape": [4, 5], "family": "tiles", "time": time,
        "copy": time, **fields,
    }  # fmt: skip


def test_figures() -> None:
    of = distribution.figures([place / 100 for place in range(1, 102)])
    assert of[:6] == pytest.approx((101, 0.01, 0.06, 0.26, 0.51, 0.76))
    assert distribution.figures([0.25, 1.0]).geometric_mean == pytest.approx(0.5)
    assert distribution.figures([0.5]) == (1, *[0.5] * 6)


def test_what_arithmetic_bounds_is_a_list_of_its_own() -> None:
    bound = [
        record_of(0.1, op="matrix_product"), record_of(0.1, op="modular_product", dtype="int64"),
        record_of(0.1, op="logaddexp", dtype="float64"),
    ]  # fmt: skip
    memory = [record_of(0.1, op=op) for op in ("logaddexp", "affine", "linear_recurrence", "max with indices")]
    assert all(map(distribution.bounded, bound)) and not any(map(distribution.bounded, memory))
    parts = distribution.parts([*bound, *memory])
    assert parts["bounded by arithmetic"] == bound and parts["input and result alike"] == memory


def test_tables_of_a_sample() -> None:
    torch = [{"torch": {"ratio": times}} for times in (0.5, 4.0)]
    records = [
        record_of(0.9), record_of(0.25, peers=torch[0]), record_of(0.81, seed=6, axis=0, peers=torch[1]),
        record_of(0.02, transposing=True), record_of(0.01, op="matrix_product", family="rows"),
    ]  # fmt: skip
    text = distribution.section(records)
    assert "| input and result alike | 5 | 2 | 0.25 | 0.28 | 0.41 | 0.57 | 0.74 | 0.47 |" in text
    assert "| input and result alike | 6 | 1 | 0.81 |" in text and "| transposing | 5 | 1 | 0.02 |" in text
    assert "| other axes | 6 | 1 | 0.81 |" in text and "| `tiles` | 5 | 2 | 0.25 |" in text
    assert "| bounded by arithmetic | 5 | 1 | 0.01 |" in text
    assert "Of 2 plain sums 1 are slower than torch's; torch takes 0.50 x as long at least" in text
    worst = text.partition("farthest from a copy:")[2].partition("Bounded")[0]
    assert worst.index("scan at 0.02") < worst.index("scan at 0.25") < worst.index("scan at 0.81")
    assert "scan at 0.01" not in worst
    assert "farthest from a copy is scan at 0.02: 0.02." in distribution.headline(records, "a GPU")


# ---- on a GPU --------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("layout", [Layout(ahead=(0, 3), behind=(0, 5)), Layout(steps=(1, 3)), Layout(behind=(0, 64))])
def test_the_copy_of_a_layout_on_the_gpu(layout: Layout) -> None:
    import cupy

    from cuscan.bench.gpu import Gpu

    gpu = Gpu()
    x = layout.of((1 << 12, 1 << 12), cupy, lambda count: cupy.arange(count, dtype=cupy.float32))
    yardstick = gpu.gather(x, x.nbytes)
    assert 0 < yardstick.factor <= 1
    yardstick.run()
    (time,) = gpu.after_work([yardstick.run])
    assert time.median > 0


@pytest.mark.gpu
@pytest.mark.parametrize("case", sample.sample(0, 40, (1 << 20, 1 << 23)), ids=lambda case: case.name)
def test_random_scans_on_the_gpu(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    from cuscan.bench.gpu import Gpu

    monkeypatch.setattr("cuscan.bench.timing.SAMPLES", 3)
    *_, (_, record) = measure(case, Gpu(), ["torch"])
    assert "error" not in record, record
    assert 0 < record["value"] < 4 and record["measured"] == "after other work"
    monkeypatch.setattr(measuring, "run_cuscan", _planted)
    *_, (_, record) = measure(case, Gpu(), [])
    assert record["error"].startswith("WrongResultError"), record
