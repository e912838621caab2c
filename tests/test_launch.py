"""The launch path of `backends/cuda.py` without a GPU: arrays that claim to be on one, and simulated kernels."""

import ctypes
import dataclasses
import itertools
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import cuscan
from cuscan import backends, kept
from cuscan.interop import adopt
from cuscan.interop.view import Device
from cuscan.operators import LINEAR_RECURRENCE
from cuscan.request import ScanRequest
from cuscan.request.call import Operands, make_flags

pytest.importorskip("cupy", reason="CuPy is not installed, and the launch path is built on it")
simulator = pytest.importorskip("simulator")
if not simulator.HAS_COMPILER:
    pytest.skip("g++ is not installed", allow_module_level=True)
from fake_gpu import Gpu, GpuArray, check, on_gpu, values  # noqa: E402

from cuscan.backends import cuda, graphs, kernel, repeats, workspace  # noqa: E402

CALLS = {
    "rows": (values((50, 20)), {}),
    "one tile": (values((9, 1000)), {"exclusive": True}),
    "chain": (values((2, 20_000)), {}),
    "long chain of wide values": (values(600_000, "float64"), {}),
    "chain of integers": (values(30_000, "int32"), {"dtype": "int64", "initial": 7}),
    "reverse, misaligned": (values(9_001)[1:], {"reverse": True}),
    "every other": (values((3, 9_000))[:, ::2], {"op": "max"}),
    "masked": (values((2, 9_000)), {"mask": values(9_000, "int8") > 50}),
    "panels": (values((2_000, 3)), {"axis": 0}),
    "columns in reverse": (values((3, 700, 40)), {"axis": 1, "reverse": True, "exclusive": True}),
}


LONG = "long chain of wide values"


@pytest.mark.parametrize("call", [pytest.param(c, marks=pytest.mark.full) if c == LONG else c for c in CALLS])
def test_a_call_on_the_gpu_has_the_bits_of_the_host(gpu, call):
    array, keywords = CALLS[call]
    check(gpu, array, **keywords)


@pytest.mark.full
def test_calls_of_all_kinds_share_a_workspace(gpu):
    order = np.random.default_rng(0).permutation(list(CALLS) * 4)
    for call in order:
        array, keywords = CALLS[call]
        check(gpu, array, **keywords)
    used = {pointers[-1] for _, _, pointers in gpu.launches} - {0}
    assert len(used) == len(workspace._workspaces) == 1  # the smallest workspace was large enough for all
    assert len(gpu.loads) == len(CALLS)


STARTS = np.array([0, 3, 3, 900, 5000])
SEVERAL = {
    # A function, arrays, other keywords, and which of the kernel's possible arrays are present.
    "indices": (cuscan.cummax, [values((2, 5000))], {"return_indices": True, "reverse": True}, (1, 1, 1, 0, 0, 0, 0)),
    "offsets": (cuscan.cumsum, [values(5000)], {"offsets": STARTS, "exclusive": True}, (1, 1, 0, 1, 0, 0)),
    "everything": (
        cuscan.cummin,
        [values((5000, 3))],
        {"axis": 0, "keys": values(5000, "int8") // 50, "mask": values(3, "int8") > 50, "return_indices": True},
        (1, 1, 1, 1, 1, 0, 0),
    ),
    "missing": (
        cuscan.nancumsum,
        [np.where(values((2, 5000)) > 1, np.float32(np.nan), values((2, 5000)))],
        {"reset": values(5000, "int8") > 98},
        (1, 1, 0, 1, 0, 0),
    ),
    "a longer result": (
        cuscan.cumsum,
        [values((2, 5000))],
        {"include_initial": True, "reverse": True},
        (1, 1, 0, 0, 0, 0),
    ),
    "rows": (
        cuscan.linear_recurrence,
        [values((5000,)), values((2, 5000))],
        {"initial": values((2,)), "return_last": True},
        (1, 1, 1, 0, 0, 1, 1),
    ),
    "a number": (
        cuscan.linear_recurrence,
        [0.75, values((5000,), "int8").astype("float16")],
        {"initial": 2, "reverse": True},
        (1, 1, 1, 0, 0, 0, 0),
    ),
    "panels": (
        cuscan.linear_recurrence,
        [values((700, 1)), values((700, 6))],
        {"axis": 0, "reset": values(6, "int8") > 50, "reverse": True},
        (1, 1, 1, 0, 1, 0, 0),
    ),
}


@pytest.mark.parametrize("call", SEVERAL)
def test_every_array_of_a_call_has_its_place(gpu, call):
    function, arrays, keywords, there = SEVERAL[call]
    moved = {k: on_gpu(v) if isinstance(v, np.ndarray) else v for k, v in keywords.items()}
    there_too = [on_gpu(a) if isinstance(a, np.ndarray) else a for a in arrays]
    got, want = function(*there_too, **moved), function(*arrays, **keywords)
    assert isinstance(got, tuple) == isinstance(want, tuple)
    for one, other in zip(*((a if isinstance(a, tuple) else (a,)) for a in (got, want)), strict=True):
        assert type(one) is GpuArray and one.dtype == other.dtype and one.strides == other.strides
        np.testing.assert_array_equal(np.asarray(one), other)
    ((_, _, pointers),), (config, *starts) = gpu.launches, gpu.loads
    assert len(starts) == len(gpu.starts) == (keywords.keys() >= {"offsets"})
    assert tuple(int(operand.present) for operand in config.operands) == there
    assert all(pointers[:-1]) and len(pointers) == sum(there) + 1


BACKWARDS = [
    ("linear_recurrence", ("a", "b", "initial"), {}),
    ("linear_recurrence", ("a", "b", "reset", "initial"), {"reverse": True}),
    ("add", ("x", "reset", "carry"), {"reverse": True}),
]


@pytest.mark.parametrize("op, roles, options", BACKWARDS)
@pytest.mark.parametrize("axis, length", [(1, 3000), (0, 700), (1, 0)])
def test_a_backward_shows_the_state_that_it_starts_from(gpu, op, roles, options, axis, length):
    """Views that lack one end of the axis, and a result with both ends; 32-bit elements and a 64-bit carry."""
    shape = (2, length) if axis else (length, 6)
    longer = (2, length + 1) if axis else (length + 1, 6)
    lines = (shape[1 - axis],)
    arrays = {
        "x": values(longer)[:, :-1] if axis else values(longer)[:-1],
        "a": values(longer, seed=1)[:, 1:] / 4 if axis else values(longer, seed=1)[1:] / 4,
        "reset": values(shape, "int8") > 95,
        "initial": values(lines, seed=2),
        "carry": values(lines, "float64", seed=3),
    }
    arrays["b"] = arrays["x"]
    named = LINEAR_RECURRENCE if op == "linear_recurrence" else op
    flags = make_flags(named, axis, options.get("reverse", False), include_initial=True)

    def run(place):
        views = tuple(adopt(place(arrays[role]), role) for role in roles)
        return backends.run(flags, Operands(views, roles), None)[0]

    got, want = run(on_gpu), run(np.asarray)
    assert got.shape == longer and len(gpu.launches) == 1
    np.testing.assert_array_equal(np.asarray(got), want)


def test_the_second_call_is_a_lookup(gpu, monkeypatch):
    array = values((4, 3000))
    check(gpu, array)
    monkeypatch.setattr(cuda, "make_request", None)
    monkeypatch.setattr(cuda, "make_plan", None)
    check(gpu, array)
    assert len(gpu.launches) == 2


def test_numbers_are_those_of_the_call(gpu):
    """They lie beside the addresses, in memory that later calls reuse."""
    x = values((2, 3000))
    for initial, a in [(7, 0.5), (-3, 0.25), (7, 1.5)]:
        check(gpu, x, initial=initial)
        np.testing.assert_array_equal(
            np.asarray(cuscan.linear_recurrence(a, on_gpu(x), initial=initial)),
            cuscan.linear_recurrence(a, x, initial=initial),
        )
    check(gpu, x)
    assert len(gpu.loads) == 3
    assert all(len(launch.kernel.idle) == 1 for launch in repeats.launches.values())


def test_launches_overlap_where_kernels_wait_for_those_before_them(gpu, monkeypatch):
    x = values(5000)
    for arch, gpu.overlaps, attributes in ((90, True, 1), (80, True, 0), (90, False, 0)):
        monkeypatch.setattr(
            cuda, "_target", lambda index, arch=arch: dataclasses.replace(simulator.SMALL_GPU, arch=arch)
        )
        repeats.launches.clear()
        kernel._kernels.clear()
        check(gpu, x, offsets=offsets_of(x))
        assert gpu.attributes[-2:] == [attributes] * 2


def test_a_kernel_that_may_not_be_compiled_is_named_by_its_command(gpu, monkeypatch):
    def missing(config, arch):
        raise cuscan.MissingKernelError("no kernel")

    monkeypatch.setattr(kernel, "load_kernel", missing)
    x = on_gpu(values((20, 30)))
    with pytest.raises(cuscan.MissingKernelError) as caught:
        cuscan.cummax(x, mask=on_gpu(np.ones(30, bool)), return_indices=True, exclusive=True)
    assert str(caught.value) == (
        "no kernel; compile it ahead of time: cuscan warm --op max --dtype float32 --exclusive --mask "
        f"--return-indices --shape 20x30 --axis 1 --arch {simulator.SMALL_GPU.arch}"
    )


def test_what_the_driver_refuses_is_its_error(gpu, monkeypatch):
    class Refused(RuntimeError):  # CuPy's error would ask the driver for its text
        pass

    monkeypatch.setattr(kernel.cupy.cuda.driver, "CUDADriverError", Refused)
    x = values(5000)
    check(gpu, x)
    gpu.status = 701
    with pytest.raises(Refused, match="701"):
        cuscan.scan(on_gpu(x))
    gpu.status = 0
    check(gpu, x)
    check(gpu, x)
    [launch] = repeats.launches.values()
    assert len(launch.kernel.idle) == 1


def test_a_thread_has_the_context_of_the_device_before_it_launches(gpu):
    def work():
        for device in (0, 1, 0, 1):
            cuscan.scan(on_gpu(values(20), device=device))

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    work()
    assert [device for _, device in gpu.contexts] == [0, 1] * 3


def test_a_kernel_is_loaded_once_for_all_shapes(gpu):
    """It is loaded once per device, because a module belongs to a context."""
    for n in (20_000, 30_000, 40_001):
        check(gpu, values(n))
    assert len(gpu.loads) == 1 and len(gpu.launches) == 3
    cuscan.scan(on_gpu(values(20_000), device=1))
    assert len(gpu.loads) == 2


def test_kept_launches_are_bounded(gpu, monkeypatch):
    """Only the oldest is dropped: a call with a stored shape plans nothing."""
    monkeypatch.setattr(kept, "MOST", 3)
    for n in range(1, 9):
        check(gpu, values(n))
        assert len(repeats.launches) == min(n, 3)
    monkeypatch.setattr(cuda, "make_plan", None)
    for n in (6, 7, 8):
        check(gpu, values(n))
    with pytest.raises(TypeError, match="NoneType"):
        check(gpu, values(5))


def test_a_kept_launch_has_no_request(gpu):
    """Programs with ever new shapes store thousands of launches: each is few objects for the garbage collector."""
    check(gpu, values(9))
    [launch] = repeats.launches.values()
    assert launch.unscanned is None and not any(isinstance(each, ScanRequest) for each in vars(launch).values())


def test_a_lookup_does_not_pass_what_the_first_call_refused(gpu):
    array = values(20)
    x, out = on_gpu(array), on_gpu(np.zeros(20, np.float32))
    cuscan.scan(x, axis=0, reverse=True, out=out)
    with pytest.raises(cuscan.ScanTypeError, match=r"^axis"):
        cuscan.scan(x, axis=0.0, reverse=True)
    with pytest.raises(cuscan.ScanTypeError, match=r"^reverse"):
        cuscan.scan(x, axis=0, reverse=1)
    out.flags.writeable = False
    with pytest.raises(cuscan.ScanValueError, match=r"^out is read-only"):
        cuscan.scan(x, axis=0, reverse=True, out=out)
    check(gpu, array, axis=np.array(0))  # cannot be hashed, but is an index


def test_what_strangers_lend_is_kept_until_the_work_is_done(gpu, monkeypatch):
    class Event:
        done = False

        def __init__(self, disable_timing):
            events.append(self)

        def record(self):
            self.launches = len(gpu.launches)

    events = []
    monkeypatch.setattr(cuda.cupy.cuda, "Event", Event)
    monkeypatch.setattr(cuda, "_lent", type(cuda._lent)())
    monkeypatch.setattr(
        gpu, "adopt", lambda a, name: dataclasses.replace(Gpu.adopt(gpu, a, name), lender=(name, len(events)))
    )
    monkeypatch.setattr(gpu, "look", lambda arrays: None)  # strangers' arrays have no known type
    x = on_gpu(values(20))
    cuscan.scan(x)
    cuscan.scan(x, mask=on_gpu(np.ones(20, bool)))
    assert [lent for _, lent in cuda._lent] == [[("x", 0)], [("x", 1), ("mask", 1)]]
    assert [event.launches for event in events] == [1, 2]
    events[0].done = True
    cuscan.scan(x)
    assert [event for event, _ in cuda._lent] == events[1:]


def test_no_launch_without_elements(gpu):
    for shape in [(0,), (3, 0), (0, 3)]:
        check(gpu, np.zeros(shape, np.float32))
    assert gpu.launches == []


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape, axis", [((0,), 0), ((3, 0), 1), ((0, 40), 0)])
def test_the_one_result_of_no_elements(gpu, shape, axis, reverse):
    """Arrays without elements have no address to count from."""
    flags = {"axis": axis, "reverse": reverse, "include_initial": True, "initial": 3}
    for beside in ({}, {"mask": np.zeros(shape, bool)}, {"reset": np.zeros(shape, bool)}, {"keys": np.zeros(0, int)}):
        check(gpu, np.zeros(shape, np.float32), **flags, **beside)
    assert len(gpu.launches) == 4


def test_out_is_written_and_returned(gpu):
    array = values((3, 2500))
    x, out = on_gpu(array), on_gpu(np.zeros((3, 5000), np.float32)[:, ::2])
    assert cuscan.scan(x, out=out) is out
    np.testing.assert_array_equal(np.asarray(out), cuscan.scan(array))
    assert cuscan.scan(x, out=x) is x
    assert [id(array) for array in gpu.writes] == [id(out), id(x)]
    np.testing.assert_array_equal(np.asarray(x), cuscan.scan(array))
    with pytest.raises(cuscan.ScanValueError, match="out overlaps x in part"):
        cuscan.scan(x[:, 1:], out=x[:, :-1])


def test_the_array_s_device_is_current_for_the_launch_alone(gpu):
    gpu.current_device = 3
    cuscan.scan(on_gpu(values(20_000), device=1))
    assert gpu.launches[-1][0] == 1 and gpu.current_device == 3
    with pytest.raises(cuscan.ScanValueError):
        cuscan.scan(on_gpu(values(10), device=1), axis=5)
    assert gpu.current_device == 3


def test_every_stream_has_a_workspace(gpu):
    x = on_gpu(values(20_000))
    for stream in (0, 11, 12, 11, 0):
        gpu.current_stream = stream
        cuscan.scan(x)
    handles = [(stream, pointers[-1]) for _, stream, pointers in gpu.launches]
    assert [stream for stream, _ in handles] == [0, 11, 12, 11, 0]
    assert len(set(handles)) == len({pointer for _, pointer in handles}) == 3


def test_memory_is_given_back(gpu):
    x = on_gpu(values(20_000))
    before = cuscan.scan(x)
    given = cuscan.release_memory()
    assert given == workspace._SMALLEST + graphs._RESERVE and not workspace._workspaces
    assert cuscan.release_memory() == 0
    np.testing.assert_array_equal(cuscan.scan(x), before)  # in new memory
    gpu.current_stream = 5
    cuscan.scan(x)
    cuscan.scan(x)  # now the reserve is cleared
    gpu.capturing.add(5)
    cuscan.scan(x)
    taken = gpu.launches[-1][2][-1]
    cuscan.release_memory()
    assert [piece.memory.pointer for _, piece in graphs._lent] == [taken] and list(graphs._reserves) != []


class Stream:
    def __init__(self, ptr, done):
        self.ptr, self.done = ptr, done


def test_a_stream_lives_as_long_as_its_workspace(gpu, monkeypatch):
    """Otherwise the next stream could get its handle, and its workspace, while it is still at work."""
    monkeypatch.setattr(workspace, "_MANY", 4)
    x = on_gpu(values(20_000))

    def scan_on(ptr, done):
        gpu.current_stream, stream = ptr, Stream(ptr, done)
        gpu.owners = {ptr: stream}
        cuscan.scan(x)
        return weakref.ref(stream)

    gpu.capturing = {13}  # asking this stream whether it is done would end the capture
    streams = [scan_on(11, done=False), scan_on(12, done=True), scan_on(14, done=True)]
    workspace._workspaces[gpu, Device("cuda", 0), 13, None, "states"] = workspace.Workspace(
        0, 0, None, SimpleNamespace(ptr=13)
    )
    gpu.owners = {}
    assert all(stream() for stream in streams)
    fifth = scan_on(15, done=True)
    gpu.owners = {}
    assert [bool(stream()) for stream in (*streams, fifth)] == [True, False, False, True]
    assert [stream for _, _, stream, _, _ in workspace._workspaces] == [11, 13, 15]


def test_the_per_thread_stream_is_another_in_every_thread(gpu):
    gpu.current_stream = 2
    x = on_gpu(values(20_000))
    for _ in range(3):  # one after the other, so that the system gives them the same number
        cuscan.scan(x)
        thread = threading.Thread(target=cuscan.scan, args=(x,))
        thread.start()
        thread.join()
    assert len({pointers[-1] for _, _, pointers in gpu.launches}) == 4


def check_in_threads(gpu, arrays, times):
    """Check each array `times` times in a thread of its own; return the errors."""
    failures = []

    def work(array):
        try:
            for _ in range(times):
                check(gpu, array)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(array,)) for array in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def test_threads_on_one_stream(gpu):
    arrays = [values((2, 5000 + 600 * i), seed=i) for i in range(6)]
    failures = check_in_threads(gpu, arrays, 5)
    assert not failures and len(gpu.launches) == 30


def test_threads_never_share_the_memory_of_arguments(gpu):
    arrays = [values(3000, seed=i) for i in range(4)]
    check(gpu, arrays[0])
    [kept] = repeats.launches.values()
    together, used = threading.Barrier(len(arrays), timeout=60), []

    def launch(*arguments):
        together.wait()  # all threads are in the driver at once
        used.append((arguments[0], arguments[2]))
        return gpu.launch(*arguments)

    kept.kernel._launch = launch
    failures = check_in_threads(gpu, arrays, 3)
    assert not failures and len(used) == 12 and len(kept.kernel.idle) == 4
    for first in (0, 4, 8):
        configurations, tables = (set(addresses) for addresses in zip(*used[first : first + 4], strict=True))
        assert len(configurations) == len(tables) == 4


def offsets_of(array, seed=0):
    """Offsets of random segments along the last axis, some of them empty."""
    n = array.shape[-1]
    return np.sort(np.concatenate([[0, n], np.random.default_rng(seed).integers(0, n + 1, n // 20)]))


def test_offsets_become_bits_in_a_launch_of_their_own(gpu):
    """The memory of the bits is not that of states, and it is reused."""
    x = values((2, 20_000))
    for call in ({}, {"reverse": True}, {}):
        check(gpu, x, offsets=offsets_of(x), **call)
    check(gpu, x, reset=values(20_000, "int8") > 90)
    assert len(gpu.starts) == 3 and len(gpu.launches) == 4 and len(gpu.loads) == 4
    for (_, stream, (offsets, bits)), (_, scan_stream, pointers) in zip(gpu.starts, gpu.launches, strict=False):
        assert stream == scan_stream and pointers[2] == bits and offsets not in pointers
    assert len({bits for _, _, (_, bits) in gpu.starts}) == len({pointers[-1] for _, _, pointers in gpu.launches}) == 1
    assert len(workspace._workspaces) == 2 and gpu.starts[0][2][1] != gpu.launches[0][2][-1]
    assert gpu.starts[0][2][1] not in gpu.cleared and gpu.launches[0][2][-1] in gpu.cleared  # bits need no clearing


def test_flags_and_keys_of_all_lines_become_bits_too(gpu, monkeypatch):
    monkeypatch.setattr("cuscan.planning.segment_starts.FEWEST", 40_000)
    x, starts = values((2, 20_000)), values(20_000, "int8") > 90
    for given in ({"reset": starts}, {"keys": np.cumsum(starts)}, {"reset": starts[::-1], "reverse": True}):
        check(gpu, x, **given)
    assert len(gpu.starts) == len(gpu.launches) == 3
    for (_, stream, (items, bits)), (_, scan_stream, pointers) in zip(gpu.starts, gpu.launches, strict=True):
        assert stream == scan_stream and pointers[2] == bits and items not in pointers
    check(gpu, x[:, 1:], reset=starts[1:])  # fewer elements
    check(gpu, x, reset=np.tile(starts, (2, 1)))
    assert len(gpu.starts) == 3 and len(gpu.launches) == 5


def test_flags_across_rows_are_copied_before_the_scan(gpu, monkeypatch):
    """The copies lie in the workspace for flags, side by side."""
    monkeypatch.setattr("cuscan.planning.flag_copies.FEWEST", 0)
    x, one, other = values((40, 700)), values((700, 40), "int8", 1).T, values((700, 40), "int8", 2).T
    flags = one > 0, other > 90
    check(gpu, x, mask=flags[0])
    check(gpu, x, mask=flags[0], reset=flags[1])
    check(gpu, x, mask=flags[0], offsets=offsets_of(x))
    assert len(gpu.copies) == 4 and len(gpu.starts) == 1 and len(gpu.launches) == 3
    (_, stream, (mask, copy)), (_, _, pair), (_, _, other), _ = gpu.copies
    assert stream == gpu.launches[0][1] and mask not in gpu.launches[0][2] and gpu.launches[0][2][2] == copy
    assert gpu.launches[1][2][2:4] == [pair[1], other[1]] and other[1] - pair[1] >= 40 * 700
    monkeypatch.setattr(cuda, "make_request", None)
    check(gpu, x, mask=flags[1])
    assert len(gpu.copies) == 5 and len(gpu.launches) == 4


def test_a_call_with_offsets_is_a_lookup_too(gpu, monkeypatch):
    x = values((4, 3000))
    check(gpu, x, offsets=offsets_of(x))
    monkeypatch.setattr(cuda, "make_request", None)
    monkeypatch.setattr(cuda, "preparations", None)
    check(gpu, x, offsets=offsets_of(x, 2))
    check(gpu, x, offsets=offsets_of(x, 1))
    assert len(gpu.starts) == len(gpu.launches) == 3
    assert all(
        len(kept.kernel.idle) == 1 for launch in repeats.launches.values() for kept in (launch, *launch.preparations)
    )


def test_memory_for_bits_grows(gpu, monkeypatch):
    monkeypatch.setattr(workspace, "_SMALLEST", 64)
    for n in (600, 5000, 3000):
        x = values(n)
        check(gpu, x, offsets=offsets_of(x))
    [bits] = [kept for key, kept in workspace._workspaces.items() if key[-1] == "flags"]
    assert bits.nbytes == 5 * 1024 // 8
    places = [bits for _, _, (_, bits) in gpu.starts]
    assert places[0] != places[1] == places[2]


def test_no_thread_takes_the_bits_of_another(gpu):
    x = values(3000)
    failures = []

    def work(seed):
        try:
            for _ in range(8):
                check(gpu, x, offsets=offsets_of(x, seed))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and len({bits for _, _, (_, bits) in gpu.starts}) == 1


def captured(gpu, x, calls, **call):
    """The workspaces of calls that a graph captures."""
    gpu.capturing.add(gpu.current_stream)
    for _ in range(calls):
        cuscan.scan(x, **call)
    gpu.capturing.clear()
    return [pointers[-1] for _, _, pointers in gpu.launches[-calls:]]


def end_graph(semaphore):
    """What the driver does when a graph is destroyed."""
    graphs._c().sem_post(ctypes.c_void_p(semaphore))


@pytest.mark.full
def test_captured_calls_have_workspaces_until_their_graphs_are_gone(gpu):
    x = on_gpu(values(20_000))
    gpu.current_stream = 5
    cuscan.scan(x)
    allocations, cleared = len(gpu.scratches), len(gpu.cleared)
    first = captured(gpu, x, 2)
    second = captured(gpu, x, 1)
    assert len(set(first + second)) == 3 == len(gpu.ties) and gpu.launches[0][2][-1] not in first + second
    for _ in range(100):
        end_graph(gpu.ties[-1])
        assert captured(gpu, x, 1) == second
    end_graph(gpu.ties[0])
    end_graph(gpu.ties[1])
    assert sorted(captured(gpu, x, 2)) == sorted(first)
    assert captured(gpu, x, 1)[0] not in first + second
    assert (len(gpu.scratches), len(gpu.cleared)) == (allocations, cleared)  # from the reserve, without clearing
    check(gpu, values(20_000))


def test_captured_workspaces_lie_apart(gpu):
    gpu.current_stream = 5
    sizes = [20_000, 20_600, 24_000, 70_000]
    for n in sizes:
        cuscan.scan(on_gpu(values(n)))
    for n in sizes:
        captured(gpu, on_gpu(values(n)), 1)
    taken = sorted(piece.memory for _, piece in graphs._lent)
    taken.sort(key=lambda memory: memory.pointer)
    assert len(taken) == 4 and len({memory.pointer % 128 for memory in taken}) == 1  # alike relative to lines
    for one, following in itertools.pairwise(taken):
        assert one.pointer + one.nbytes <= following.pointer


@pytest.mark.parametrize("why", ["reserve", "driver", "bits"])
def test_other_memory_of_captured_calls_is_of_their_graph(gpu, monkeypatch, why):
    """Each replay clears the memory that must be clear, and cuscan holds none of it afterwards."""
    x = values(20_000)
    there, call = on_gpu(x), {"offsets": on_gpu(offsets_of(x))} if why == "bits" else {}
    if why == "reserve":
        monkeypatch.setattr(graphs, "_mark", lambda stream: SimpleNamespace(done=False))  # it is not cleared yet
    if why == "driver":
        monkeypatch.setattr(graphs, "_tie", lambda stream, semaphore: False)
    gpu.current_stream = 5
    cuscan.scan(there, **call)
    cleared, kept = len(gpu.cleared), set(gpu.held)
    used = captured(gpu, there, 2, **call)
    assert len(gpu.of_graphs) == 2 and not any(memory() for memory in gpu.of_graphs)
    assert gpu.cleared[cleared:] == ([] if why == "bits" else used) and set(gpu.held) == kept
    bits = [bits for _, _, (_, bits) in gpu.starts]
    assert not bits or bits[0] not in bits[1:]
    check(gpu, x, **({"offsets": offsets_of(x)} if call else {}))


def test_a_reserve_is_replaced_before_it_is_used_up(gpu, monkeypatch):
    x = on_gpu(values(20_000))
    gpu.current_stream = 5
    cuscan.scan(x)
    captured(gpu, x, 1)
    size = graphs._lent[0][1].memory.nbytes
    for name, value in (("_RESERVE", 8 * size), ("_reserves", {}), ("_idle", {})):
        monkeypatch.setattr(graphs, name, value)
    monkeypatch.setattr(workspace, "_workspaces", {})
    cuscan.scan(x)
    pointers = captured(gpu, x, 5)
    before = len(gpu.scratches)
    cuscan.scan(x)
    assert len(gpu.scratches) == before + 1
    pointers += captured(gpu, x, 8)
    assert len(gpu.of_graphs) == 0 and len(set(pointers)) == 13
    captured(gpu, x, 1)
    assert len(gpu.of_graphs) == 1  # the reserve is used up


def test_a_workspace_grows_and_survives_a_failure(gpu, monkeypatch):
    monkeypatch.setattr(workspace, "_SMALLEST", 64)
    check(gpu, values(20_000))
    gpu.out_of_memory = True
    with pytest.raises(MemoryError):
        cuscan.scan(on_gpu(values(600_000, "float64")))
    check(gpu, values(20_000))
    gpu.out_of_memory = False
    check(gpu, values(600_000, "float64"))
    check(gpu, values(20_000))
    sizes = [memory.size for memory in gpu.scratches if memory.size != graphs._RESERVE]
    assert len(sizes) == 2 and sizes[0] < sizes[1]
