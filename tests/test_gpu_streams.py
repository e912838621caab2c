"""Streams, threads, captured graphs and several GPUs: work is queued on the right stream, and nothing waits."""

from __future__ import annotations

import gc
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from features import offsets_for
from gpu import LIBRARIES, assert_same, check, config_of, cupy, hold, need, numbers, to_numpy

import cuscan
from cuscan import ScanValueError
from cuscan.backends import repeats, workspace
from cuscan.kept import Table

pytestmark = pytest.mark.gpu

both_libraries = pytest.mark.parametrize("name", LIBRARIES)

# Chains of tiles, of columns, of a few columns and of whole rows; rows and clusters, which need no workspace.
CALLS = [
    ((300_000,), {}),
    ((1100, 350), {"axis": 0, "reverse": True}),
    ((9000, 6), {"axis": 0, "reverse": True}),
    ((9000, 50), {"axis": 0, "reverse": True}),
    ((3000, 50), {"exclusive": True}),
    ((5, 50_000), {"reverse": True}),
]
every_call = pytest.mark.parametrize(
    "shape, call", CALLS, ids=["tiles", "panels", "strips", "whole rows", "rows", "clusters"]
)


class Work:
    """An input on the GPU, the keywords of its scan, and the expected result."""

    def __init__(self, library: Any, shape: tuple[int, ...], call: dict[str, Any], seed: int) -> None:
        host = numbers(shape, seed=seed)
        self.library, self.x = library, library.device(host)
        self.call, of_host = (
            {key: place(value) if isinstance(value, np.ndarray) else value for key, value in call.items()}
            for place in (library.device, library.host)
        )
        self.expected = cuscan.scan(library.host(host), **of_host)
        self.on_gpu = library.device(to_numpy(self.expected))

    def scan(self) -> Any:
        return cuscan.scan(self.x, **self.call)

    def check(self, got: Any, what: str) -> None:
        if not self.library.equal(got, self.on_gpu):
            assert_same(got, self.expected, what)


def some_work(library: Any, seeds: int) -> list[Work]:
    """Every call of `CALLS`, and one with offsets, each with several inputs on the GPU. All kernels are compiled."""
    work = []
    for seed in range(seeds):
        offsets = offsets_for(np.random.default_rng(seed), 70_000)  # each scan gets bits of its own
        for shape, call in (*CALLS, ((70_000,), {"offsets": offsets})):
            work.append(Work(library, shape, call, seed))
    for each in work[: len(work) // seeds]:
        each.scan()
    library.synchronize()
    return work


def assert_all(queued: list[tuple[Any, Work]]) -> None:
    for number, (got, work) in enumerate(queued):
        work.check(got, f"result {number}")


# ---- the current stream -----------------------------------------------------------------------------------


@both_libraries
@every_call
def test_work_goes_to_the_current_stream(name, shape, call):
    library = need(name)
    work = Work(library, shape, call, seed=1)
    x = library.device(np.zeros(shape, np.float32))
    cuscan.scan(x, **call)
    library.synchronize()
    stream = library.stream()
    hold(0, library.handle(stream))
    with library.on(stream):
        hold(100, library.handle(stream))  # on any other stream the scan would run before the copy
        x[...] = work.x
        got = cuscan.scan(x, **call)
        stream.synchronize()
    assert_same(got, work.expected)


@both_libraries
@every_call
def test_events_order_streams(name, shape, call):
    library = need(name)
    work = Work(library, shape, call, seed=1)
    x = library.device(np.zeros(shape, np.float32))
    first, second, third = (library.stream() for _ in range(3))
    cuscan.scan(x, **call)
    library.synchronize()
    with library.on(first):
        hold(50, library.handle(first))
        x[...] = work.x
        copied = library.event(first)
    with library.on(second):
        second.wait_event(copied)
        got = cuscan.scan(x, **call)
        scanned = library.event(second)
    with library.on(third):
        third.wait_event(scanned)
        again = library.copy(got)
    third.synchronize()
    assert_same(again, work.expected)


@both_libraries
@every_call
@pytest.mark.parametrize("where", ["the same stream", "another stream", "the default stream"])
def test_nothing_waits_for_the_device(name, shape, call, where):
    library = need(name)
    work = Work(library, shape, call, seed=1)
    stream = library.default_stream() if where == "the default stream" else library.stream()
    busy = library.stream() if where == "another stream" else stream
    with library.on(stream):
        work.scan()  # compiled, and with its workspace
    hold(0, library.handle(busy))
    library.synchronize()
    hold(300, library.handle(busy))
    event = library.event(busy)
    with library.on(stream):
        got = work.scan()
    assert not library.is_done(event)
    if where == "another stream":
        stream.synchronize()
        assert not library.is_done(event)
    library.synchronize()
    assert_same(got, work.expected)


@both_libraries
def test_streams_come_and_go(name):
    """CUDA gives the handle of a destroyed stream that is still at work to the next one, and runs both at once."""
    library = need(name)
    work = some_work(library, seeds=4)
    queued = []
    for each in work * 10:
        stream = library.stream()
        with library.on(stream):
            hold(1, library.handle(stream))
            queued.append((each.scan(), each))
        del stream
    library.synchronize()
    assert_all(queued)


# ---- threads ------------------------------------------------------------------------------------------------


@pytest.fixture
def eager_threads():
    """Threads take turns as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def run_threads(library: Any, streams: list[list[Any]], cold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread per list of streams; each thread queues many scans, on its streams in turn."""
    work = some_work(library, seeds=5)
    if cold:  # all threads prepare the same calls at once
        monkeypatch.setattr(repeats, "launches", Table())
        monkeypatch.setattr(repeats, "latest", Table())
        monkeypatch.setattr(workspace, "_workspaces", {})
    start = threading.Barrier(len(streams))

    def queue(number: int) -> list[tuple[Any, Work]]:
        start.wait()
        queued = []
        for i in range(60):
            each = work[(7 * number + i) % len(work)]
            with library.on(streams[number][i % len(streams[number])]):
                queued.append((each.scan(), each))
        for stream in streams[number]:
            stream.synchronize()
        return queued

    with ThreadPoolExecutor(len(streams)) as pool:
        for queued in list(pool.map(queue, range(len(streams)))):
            assert_all(queued)


@both_libraries
@pytest.mark.parametrize("cold", [True, False], ids=["cold", "warm"])
@pytest.mark.usefixtures("eager_threads")
def test_threads_with_streams_of_their_own(name, cold, monkeypatch):
    library = need(name)
    run_threads(library, [[library.stream() for _ in range(3)] for _ in range(6)], cold, monkeypatch)


@both_libraries
@pytest.mark.parametrize("cold", [True, False], ids=["cold", "warm"])
@pytest.mark.usefixtures("eager_threads")
def test_threads_that_share_a_stream(name, cold, monkeypatch):
    library = need(name)
    run_threads(library, [[library.stream()]] * 6, cold, monkeypatch)


@pytest.mark.usefixtures("eager_threads")
def test_threads_with_the_stream_per_thread(monkeypatch):
    run_threads(need("cupy"), [[cupy.cuda.Stream.ptds]] * 6, True, monkeypatch)


# ---- graphs ---------------------------------------------------------------------------------------------------


class Replayed:
    """Captured scans of one input buffer, in a stream."""

    def __init__(self, library: Any, work: list[Work]) -> None:
        self.library, self.work, self.stream = library, work, library.stream()
        self.x = library.device(np.zeros(tuple(work[0].x.shape), np.float32))
        cuscan.scan(self.x, **work[0].call)
        library.synchronize()
        self.graph, self.result = library.capture(lambda: cuscan.scan(self.x, **work[0].call), self.stream)
        self.queued: list[tuple[Any, Work]] = []

    def replay(self, number: int) -> None:
        work = self.work[number % len(self.work)]
        with self.library.on(self.stream):
            self.x[...] = work.x
            self.library.replay(self.graph, self.stream)
            self.queued.append((self.library.copy(self.result), work))


@both_libraries
@every_call
def test_replays_with_other_inputs_among_eager_calls(name, shape, call):
    library = need(name)
    work = [Work(library, shape, call, seed) for seed in range(5)]
    captured, other, eager = Replayed(library, work), library.stream(), []
    for number in range(100):
        captured.replay(number)
        with library.on(captured.stream):
            eager.append((work[(number + 1) % 5].scan(), work[(number + 1) % 5]))
        with library.on(other):
            eager.append((work[(number + 2) % 5].scan(), work[(number + 2) % 5]))
    library.synchronize()
    assert_all(captured.queued)
    assert_all(eager)


@both_libraries
@every_call
def test_two_graphs_at_once(name, shape, call):
    library = need(name)
    work = [Work(library, shape, call, seed) for seed in range(5)]
    pair = Replayed(library, work), Replayed(library, work[::-1])
    for number in range(100):
        for captured in pair:
            captured.replay(number)
    library.synchronize()
    for captured in pair:
        assert_all(captured.queued)


@both_libraries
def test_a_graph_of_several_scans_in_any_stream(name):
    library = need(name)
    work = [Work(library, shape, call, seed) for seed, (shape, call) in enumerate(CALLS)]
    outs = [each.scan() for each in work]

    def call():
        for each, out in zip(work * 2, outs * 2, strict=True):
            cuscan.scan(each.x, out=out, **each.call)

    call()
    library.synchronize()
    graph, _ = library.capture(call, library.stream())
    for stream in (library.stream(), library.stream()):
        with library.on(stream):
            for out in outs:
                out[...] = 0
        library.replay(graph, stream)
        stream.synchronize()
        assert_all(list(zip(outs, work, strict=True)))


def test_the_first_call_of_all_may_be_captured():
    """CuPy's capture mode allows loading kernels meanwhile; torch needs a call before the capture."""
    library = need("cupy")
    x = numbers((123_457,), "int32")
    array, stream = library.device(x), library.stream()
    library.synchronize()
    graph, result = library.capture(lambda: cuscan.scan(array, "xor", initial=77), stream)
    library.replay(graph, stream)
    stream.synchronize()
    assert_same(result, cuscan.scan(x, "xor", initial=77))


@both_libraries
def test_a_graph_outlives_the_calls_around_it(name):
    """While a graph exists, its memory is neither freed nor reused."""
    library = need(name)
    work = [Work(library, *CALLS[0], seed) for seed in range(3)]
    captured = Replayed(library, work)
    held = []
    for number in range(10):
        gc.collect()
        held.append(library.device(np.full(300_000 * (number + 1), -1, np.float32)))
        check(name, numbers((500_000 * (number + 1),)))
        captured.replay(number)
    library.synchronize()
    assert_all(captured.queued)
    assert all(bool((array == -1).all()) for array in held)


# ---- chains of scans ------------------------------------------------------------------------------------------

ALONG = [{"axis": -1}, {"axis": -1, "reverse": True}]
ACROSS = [{"axis": 0}, {"axis": 0, "reverse": True}]
SEGMENTED = [{**call, "offsets": offsets_for(np.random.default_rng(0), 300_000)} for call in ALONG]
KEYED = [{**call, "keys": np.zeros((1100, 1), np.int32)} for call in ACROSS]  # one segment

# A shape, and calls that take turns. Each name begins with the kernel family of the first call.
CHAINS = {
    "rows": ((1000, 64), ALONG),
    "thread_rows": ((1000, 7), ALONG),
    "staged_rows": ((200, 501), ALONG),
    "cluster": ((3, 20_000), ALONG),
    "cluster in turn": ((140, 8256), ALONG),
    "tiles": ((300_000,), ALONG),
    "tiles with offsets": ((300_000,), SEGMENTED),
    "panels": ((1100, 230), KEYED),
    "strips of keys as bits": ((1100, 350), KEYED),
    "strips of unaligned rows": ((1100, 350), ACROSS),
    "whole_rows": ((9000, 50), ACROSS),
    "strips": ((9000, 6), ACROSS),
    "rows and strips": ((1024, 640), [ALONG[0], ACROSS[1]]),
}


def chain(x: Any, y: Any, calls: list[dict[str, Any]]) -> None:
    """Fifty scans, each of the previous one's result; the last one writes `x`."""
    for number in range(50):
        cuscan.scan(x, out=y, dtype="int32", **calls[number % 2])
        x, y = y, x


@both_libraries
@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("kind", CHAINS)
def test_a_scan_reads_what_the_one_before_it_wrote(name, kind, captured):
    """Kernels begin before earlier ones end. Integers wrap: in the end an element depends on all earlier ones."""
    library, (shape, calls) = need(name), CHAINS[kind]
    host = numbers(shape, "int32")
    assert config_of(host, dtype="int32", **calls[0]).family == kind.split()[0]

    def placed(place: Any) -> list[dict[str, Any]]:
        return [{key: place(v) if isinstance(v, np.ndarray) else v for key, v in call.items()} for call in calls]

    expected, on_gpu = library.host(host), placed(library.device)
    chain(expected, library.host(host), placed(library.host))
    start, x, y = (library.device(host) for _ in range(3))
    chain(x, y, on_gpu)  # compiled, and with its workspace
    library.synchronize()
    stream, results = library.stream(), []
    if captured:
        graph, _ = library.capture(lambda: chain(x, y, on_gpu), stream)
    with library.on(stream):
        for _ in range(3):
            x[...] = start
            if captured:
                library.replay(graph, stream)
            else:
                chain(x, y, on_gpu)
            results.append(library.copy(x))
    library.synchronize()
    for number, result in enumerate(results):
        assert_same(result, expected, f"result {number}")


# ---- memory ---------------------------------------------------------------------------------------------------


@both_libraries
def test_a_thousand_calls_keep_no_memory(name):
    library = need(name)
    work = some_work(library, seeds=1)

    def calls(count: int) -> None:
        for i in range(count):
            work[i % len(work)].scan()
        library.synchronize()
        gc.collect()

    calls(100)
    before, launches = library.memory(), len(repeats.launches)
    calls(1000)
    assert library.memory() == before
    assert len(repeats.launches) == launches


def free_bytes() -> int:
    """Free memory of the GPU, after libraries have released all memory that they keep for later."""
    gc.collect()
    cupy.cuda.runtime.deviceSynchronize()
    cupy.get_default_memory_pool().free_all_blocks()
    if "torch" in sys.modules:
        sys.modules["torch"].cuda.empty_cache()
    return int(cupy.cuda.runtime.memGetInfo()[0])


@pytest.mark.skipif(
    int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1,
    reason="measures the memory of the whole GPU, of which other workers take some: pytest -n 0 -k keep_no_memory",
)
@both_libraries
def test_graphs_that_are_gone_keep_no_memory(name):
    """A hundred captures of every call. Each takes up to 161 bytes per KiB, in total more than the test tolerates."""
    library = need(name)
    work = some_work(library, seeds=1)
    large = Work(library, (40_000, 350), {"axis": 0}, 0)
    stream = library.stream()

    def captures(count: int) -> int:
        for number in range(count):
            each = large if number % 2 else work[number // 2 % len(work)]
            graph, result = library.capture(each.scan, stream)
            library.replay(graph, stream)
            stream.synchronize()
            each.check(result, f"capture {number}")
            del graph, result
        return free_bytes()

    captures(20)
    assert captures(20) - captures(100) <= 2 << 20


@both_libraries
def test_a_graph_s_memory_may_be_used_again_within_it(name):
    """Work after a scan in a graph may reuse its workspace, and fill it with anything."""
    library = need(name)
    work = some_work(library, seeds=1)

    def mixed() -> list[Any]:
        results = []
        for each in work:
            results.append(each.scan())
            for size in (1, 16, 256):  # KiB; freed at once
                library.copy(results[-1]).reshape(-1)[: size * 256] * 0 - 1
        return results

    mixed()
    library.synchronize()
    stream = library.stream()
    graph, results = library.capture(mixed, stream)
    for _ in range(5):
        library.replay(graph, stream)
    stream.synchronize()
    assert_all(list(zip(results, work, strict=True)))


# ---- several GPUs ---------------------------------------------------------------------------------------------


@pytest.fixture
def second_gpu():
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("fewer than two GPUs")


@both_libraries
@every_call
@pytest.mark.usefixtures("second_gpu")
def test_the_gpu_of_the_array_does_the_work(name, shape, call):
    library, host = need(name), numbers(shape)
    with cupy.cuda.Device(1):
        x = library.device(host) if name == "cupy" else library.host(host).to("cuda:1")
    assert cupy.cuda.runtime.getDevice() == 0
    got = cuscan.scan(x, **call)
    assert cupy.cuda.runtime.getDevice() == 0
    assert got.device == x.device and x.device != library.device(host).device
    assert_same(got, cuscan.scan(library.host(host), **call))
    with pytest.raises(ScanValueError, match="axis"):
        cuscan.scan(x, axis=7)
    assert cupy.cuda.runtime.getDevice() == 0


@both_libraries
@pytest.mark.usefixtures("second_gpu")
def test_both_gpus_at_once(name):
    library, host = need(name), [numbers((300_000,), seed=seed) for seed in range(2)]
    with cupy.cuda.Device(1):
        second = library.device(host[1]) if name == "cupy" else library.host(host[1]).to("cuda:1")
    arrays = [library.device(host[0]), second]
    results = [cuscan.scan(arrays[i % 2]) for i in range(100)]
    for i, got in enumerate(results):
        assert_same(got, cuscan.scan(library.host(host[i % 2])))
    mask = library.device(np.ones(300_000, bool))
    with pytest.raises(ScanValueError, match="mask is on cuda:0 and x on cuda:1"):
        cuscan.scan(second, mask=mask)
