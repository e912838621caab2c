"""Scans of sequences that come chunk by chunk, compared with scans of the whole."""

from __future__ import annotations

import contextlib
import itertools
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from conftest import has_gpu
from operator_examples import AFFINE
from sharding import Sample, agree, draw_sample

import cuscan
from cuscan import ScanTypeError, ScanValueError


def in_chunks(sample: Sample, **more: Any) -> list[tuple[Any, ...]]:
    """The results of each piece, in the order of the axis."""
    order = range(len(sample.pieces))[:: -1 if sample.keywords["reverse"] else 1]
    chunks = (tuple(sample.values_of(i)) if len(sample.values) > 1 else sample.values_of(i)[0] for i in order)
    given = {
        name: array if name == "offsets" else [sample.beside_of(i)[name] for i in order]
        for name, array in sample.beside.items()
    }
    op, keywords = sample.op, dict(sample.keywords)
    if op in ("cummax", "cummin"):
        op, keywords["return_indices"] = op[3:], True
    results = [r if isinstance(r, tuple) else (r,) for r in cuscan.scan_chunks(chunks, op, **keywords, **given, **more)]
    return results[:: -1 if sample.keywords["reverse"] else 1]


def check(rng: np.random.Generator, **more: Any) -> None:
    sample = draw_sample(rng, (1, 2, 4, 7))
    parts, whole = in_chunks(sample, **more), sample.whole()
    if sample.op in ("cummax", "cummin") and sample.keywords["reverse"]:
        starts = [first for first, _ in sample.pieces]  # positions count from the beginning of their chunk
        parts = [
            (value, np.where(index < 0, index, index + at)) for (value, index), at in zip(parts, starts, strict=True)
        ]
    agree(parts, whole, sample.axis)
    assert all(part[0].shape == sample.result_piece(whole[0], i).shape for i, part in enumerate(parts))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 6))])
def test_chunks_give_the_whole(seed: int) -> None:
    rng = np.random.default_rng([seed, 2])
    for _ in range(150):
        check(rng)


class Stub(np.ndarray):
    """An array on an imaginary GPU, which records the requests made to streams."""

    log: ClassVar[list[str]] = []

    def set(self, host: Any, stream: Any) -> None:
        self.log.append(f"{stream.name} {host[0]}")
        self[...] = host

    def get(self, stream: Any, out: Any, blocking: bool) -> None:
        assert not blocking
        out[...] = self


class StubStream(contextlib.nullcontext):  # type: ignore[type-arg]
    """A stream that does everything at once, and is its own event."""

    def __init__(self, non_blocking: bool) -> None:
        assert non_blocking
        super().__init__()
        self.name = f"stream {next(NUMBERS)}"

    def record(self) -> StubStream:
        return self

    def wait_event(self, event: StubStream) -> None:
        Stub.log.append(f"{self.name} waits for {event.name}")

    def synchronize(self) -> None:
        Stub.log.append(f"host waits for {self.name}")


NUMBERS = itertools.count()


def test_one_chunk_comes_while_others_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from cuscan import transfers
    from cuscan.chunks import Chunk

    cuda = SimpleNamespace(Device=lambda device: contextlib.nullcontext(), Stream=StubStream)
    stub = SimpleNamespace(cuda=cuda, empty=lambda *shape: np.empty(*shape).view(Stub))
    monkeypatch.setattr(transfers, "cupy", stub)
    monkeypatch.setattr(transfers, "cupyx", SimpleNamespace(empty_pinned=np.empty))
    monkeypatch.setattr(Stub, "log", [])
    monkeypatch.setitem(globals(), "NUMBERS", itertools.count())
    chunks = (Chunk((np.full(2, number),), {}, False) for number in range(4))
    results = transfers.Passages("cuda")(lambda chunk: (chunk.values[0] * 10,), chunks)
    queued = [
        [f"stream 0 {number}", "stream 1 waits for stream 0", "stream 2 waits for stream 1"] for number in range(4)
    ]
    assert next(results)[0].tolist() == [0, 0]
    assert Stub.log == [*queued[0], *queued[1], *queued[2], "host waits for stream 2"]
    assert [out.tolist() for (out,) in results] == [[10, 10], [20, 20], [30, 30]]
    assert Stub.log[10:13] == queued[3]
    assert Stub.log[-3:] == ["host waits for stream 0", "host waits for stream 1", "host waits for stream 2"]


@pytest.mark.gpu
def test_chunks_go_through_a_gpu() -> None:
    rng = np.random.default_rng(3)
    for _ in range(60):
        check(rng, device="cuda")


@pytest.mark.gpu
def test_chunks_of_gpus_stay_there() -> None:
    import cupy

    chunks = [cupy.arange(5), cupy.arange(3)]
    results = list(cuscan.scan_chunks(chunks))
    assert all(isinstance(result, cupy.ndarray) for result in results)
    assert results[1].tolist() == [10, 11, 13]


def test_a_carry_comes_in_and_goes_out() -> None:
    carries = []

    def outer() -> Any:
        carries.append((yield from cuscan.scan_chunks([np.ones(2), np.ones(3)], carry=np.array(10.0))))

    assert np.concatenate(list(outer())).tolist() == [11, 12, 13, 14, 15]
    assert carries == [15.0]
    assert list(cuscan.scan_chunks([])) == []


def test_memory_mapped_files(tmp_path: Any) -> None:
    """One file of a matrix, row by row, and several files that are one sequence; nothing of them is copied before."""
    whole = np.arange(60, dtype=np.int32).reshape(6, 10)
    paths = [tmp_path / f"{i}" for i in range(6)]
    for path, row in zip(paths, whole, strict=True):
        row.tofile(path)
    files = (np.memmap(path, np.int32, "r") for path in paths)
    np.testing.assert_array_equal(np.concatenate(list(cuscan.scan_chunks(files))), np.cumsum(whole))
    np.save(tmp_path / "matrix.npy", whole)
    matrix = np.load(tmp_path / "matrix.npy", mmap_mode="r")
    assert isinstance(matrix[:2], np.memmap)
    parts = cuscan.scan_chunks((matrix[i : i + 2] for i in range(0, 6, 2)), axis=0)
    np.testing.assert_array_equal(np.concatenate(list(parts)), np.cumsum(whole, 0))


def test_batches_of_a_data_loader() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    loader = torch.utils.data.DataLoader(torch.arange(10.0), batch_size=4)
    parts = list(cuscan.scan_chunks(loader))
    assert [len(part) for part in parts] == [4, 4, 2]
    torch.testing.assert_close(torch.cat(parts), torch.arange(10.0).cumsum(0))


def test_a_source_that_fails() -> None:
    """Its error comes out after the results before it, and the next call works."""

    def source() -> Any:
        yield np.ones(2)
        raise OSError("this file is broken")

    parts = cuscan.scan_chunks(source())
    assert next(parts).tolist() == [1, 2]
    with pytest.raises(OSError, match="this file is broken"):
        next(parts)
    assert next(cuscan.scan_chunks([np.ones(2)])).tolist() == [1, 2]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_segment_may_start_where_the_first_chunk_does(reverse: bool) -> None:
    chunks, offsets = [np.ones(0), np.ones(2), np.ones(1)], [0, 0, 3, 3]
    call = {"offsets": offsets, "reverse": reverse}
    assert next(r for r in cuscan.scan_chunks(chunks, **call, carry=np.array(5.0)) if len(r)).tolist()[-reverse] == 1
    assert next(r for r in cuscan.scan_chunks(chunks, **call, initial=5) if len(r)).tolist()[-reverse] == 6


def test_nothing_is_read_ahead() -> None:
    read = []

    def stream() -> Any:
        for number in range(3):
            read.append(number)
            yield np.full(2, number)

    scans = cuscan.scan_chunks(stream(), include_initial=True)
    assert read == []
    assert next(scans).tolist() == [0, 0, 0]
    assert read == [0]


def test_operators_of_users() -> None:
    values = AFFINE.draw(np.random.default_rng(0), (30,))
    chunks = [tuple(value[some] for value in values) for some in (slice(0, 7), slice(7, 7), slice(7, None))]
    found = list(cuscan.scan_chunks(chunks, AFFINE.operator()))
    for i, expected in enumerate(cuscan.scan(values, AFFINE.operator())):
        np.testing.assert_array_equal(np.concatenate([part[i] for part in found]), expected)


@pytest.mark.parametrize(
    "call, error, message",
    [
        ({"mask": []}, ScanValueError, "mask has fewer arrays than there are chunks"),
        ({"offsets": [0, 2]}, ScanValueError, "offsets end with 2, and the chunks so far have 3 elements"),
        ({"offsets": [0, 3], "keys": []}, ScanValueError, "offsets and keys exclude each other"),
        ({"op": "linear_recurrence", "exclusive": True}, ScanTypeError, "takes no exclusive"),
        ({"axis": 4}, ScanValueError, r"axis 4 is out of range"),
    ],
)
def test_errors(call: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        list(cuscan.scan_chunks([np.ones(3)], **call))


def test_devices_need_cupy_and_numpy_chunks() -> None:
    if not has_gpu():
        pytest.skip("no CUDA GPU")
    with pytest.raises(ScanTypeError, match="must be NumPy arrays; got list"):
        list(cuscan.scan_chunks([[1, 2]], device="cuda"))
