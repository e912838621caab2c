"""A fake GPU: arrays that claim to be on it, and launches that run in the simulator. Needs CuPy and g++."""

import ctypes
import dataclasses
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import simulator
from views import of_another_kind

import cuscan
from cuscan import interop
from cuscan.backends import cuda, graphs, kernel, repeats, workspace
from cuscan.interop.numpy import NumPyLibrary
from cuscan.interop.view import Device
from cuscan.kept import Table
from cuscan.planning.config import Config
from cuscan.specs import dense_strides


class GpuArray(np.ndarray):
    """An array that claims to be on a GPU."""

    device = 0


class Gpu(NumPyLibrary):
    """The library of GpuArray, and the GPU behind it: one launch at a time, in the order of the calls."""

    name = "gpu"

    def __init__(self):
        super().__init__()
        self.current_device, self.current_stream, self.capturing = 0, 0, set()
        self.owners = {}
        self.contexts = []  # pairs (thread, device)
        self.starts, self.launches, self.loads, self.scratches, self.writes = [], [], [], [], []
        self.copies = []
        self.functions, self.status, self.attributes, self.overlaps = [], 0, [], True
        self.of_graphs, self.cleared, self.held, self.ties = [], [], {}, []
        self.out_of_memory = False
        self.kinds = {}
        self.lock = threading.Lock()

    # ---- functions of the library
    def pointer(self, array):
        return int(array.ctypes.data) if array.nbytes else 0  # without memory: as in CuPy and torch

    def put(self, array, value):
        array[...] = value

    def written(self, array):
        self.writes.append(array)

    def adopt(self, array, name):
        view = super().adopt(array, name)
        strides = view.strides if array.size else dense_strides(array.shape, (0,) * array.ndim)  # as in torch
        view = of_another_kind(view, device=Device("cuda", array.device), strides=strides)
        told = (view.dtype, view.shape, view.strides, view.device, view.readonly)
        return dataclasses.replace(view, pointer=self.pointer(array), kind=self.kinds.setdefault(told, view.kind))

    def look(self, arrays):
        if {type(array) for array in arrays} != {GpuArray}:
            return None
        pointers = [self.pointer(array) for array in arrays]
        facts = [
            (a.dtype, a.shape, a.strides, a.device, a.flags.writeable, p % 16)
            for a, p in zip(arrays, pointers, strict=True)
        ]
        return facts, pointers

    def maker(self, shape, strides, dtype, device):
        make = super().maker(shape, strides, dtype, device)
        return lambda: make().view(GpuArray)

    def scratch(self, nbytes, device):
        return self.allocate(nbytes)

    def malloc_async(self, nbytes, stream):
        assert stream == self.current_stream
        memory = self.allocate(nbytes)
        self.held[self.pointer(memory)] = memory
        return self.pointer(memory)

    def free_async(self, pointer, stream):
        del self.held[pointer]

    def allocate(self, nbytes):
        if self.out_of_memory:
            raise MemoryError("the GPU is full")
        scratch = aligned(nbytes)
        scratch[:] = 0xA5
        self.scratches.append(scratch)
        return scratch  # not the last one of the list, which may belong to another thread

    def scratch_of_graph(self, nbytes, device):
        memory = self.allocate(nbytes)
        self.of_graphs.append(weakref.ref(self.scratches.pop()))
        return memory

    def stream(self, device):
        return self.current_stream

    def stream_owner(self, device):
        return self.owners.get(self.current_stream)

    # ---- functions of CUDA
    def clear(self, pointer, value, nbytes, stream):
        assert stream == self.current_stream
        self.cleared.append(pointer)
        ctypes.memset(pointer, value, nbytes)

    def tie(self, stream, semaphore):
        assert stream in self.capturing
        self.ties.append(semaphore)
        return True

    def make_context(self):
        self.contexts.append((threading.get_ident(), self.current_device))

    def load_kernel(self, config, arch):
        self.loads.append(config)
        kernel = simulator.CODE.kernel(config, arch)
        launch = self.launch_of(config, kernel) if isinstance(config, Config) else self.launch_before(config, kernel)
        self.functions.append(launch)
        return SimpleNamespace(ptr=len(self.functions) - 1)

    def launch(self, config, function, table, _):
        blocks, _, _, threads, _, _, shared_bytes, _ = (ctypes.c_uint32 * 8).from_address(config)
        stream, attributes, count = (ctypes.c_uint64 * 3).from_address(config + 32)
        overlaps = (ctypes.c_uint32 * 3).from_address(attributes)
        assert (overlaps[0], overlaps[2]) == (6, 1)
        self.attributes.append(count & 0xFFFFFFFF)
        self.functions[function](blocks, threads, shared_bytes, stream, table)
        return self.status

    def launch_before(self, config, kernel):
        def launch(blocks, threads, shared_bytes, stream, table):
            given, written, words = (ctypes.c_void_p * 3).from_address(table)
            with self.lock:
                launches = self.starts if config.family == "segment_starts" else self.copies
                launches.append((self.current_device, stream, [at(given), at(written)]))
                schedule = simulator.Schedule.of(
                    len(self.starts), simulator.new_workspace(16), shared_bytes=shared_bytes
                )
                message = kernel(
                    ctypes.byref(schedule),
                    *(blocks, threads),
                    *(ctypes.c_void_p(at(place)) for place in (given, written)),
                    ctypes.c_void_p(words),
                )
            assert message is None, message

        return launch

    def launch_of(self, config, kernel):
        def launch(blocks, threads, shared_bytes, stream, table):
            present = [operand for operand in config.operands if operand.present]
            places = iter((ctypes.c_void_p * (len(present) + 3)).from_address(table))
            # The table contains the address of every argument; the argument is an address or a value.
            given = [p if operand.by_value else at(p) for operand, p in zip(present, places, strict=False)]
            states, carry, geometry = at(next(places)), *(ctypes.c_void_p(place) for place in places)
            with self.lock:
                self.launches.append((self.current_device, stream, [*given, states]))
                schedule = simulator.Schedule.of(
                    len(self.launches), simulator.new_workspace(16), shared_bytes=shared_bytes
                )
                addresses = iter(given)
                arrays = [next(addresses) if operand.present else None for operand in config.operands]
                message = kernel(
                    ctypes.byref(schedule),
                    *(blocks, threads),
                    (ctypes.c_void_p * len(arrays))(*arrays),
                    ctypes.c_void_p(states or None),
                    carry,
                    geometry,
                )
            assert message is None, message

        return launch


def at(address):
    """The word at an address."""
    return ctypes.c_uint64.from_address(address).value


def aligned(nbytes):
    """Zeroed bytes, aligned like those of a GPU's allocator."""
    base = np.zeros(nbytes + 256, np.uint8)
    return base[-base.ctypes.data % 256 :][:nbytes]


def fake_gpu(monkeypatch):
    """A GPU in place of the real ones, as long as the generator lives."""
    fake = Gpu()
    monkeypatch.setitem(interop._libraries, GpuArray, fake)
    monkeypatch.setattr(repeats, "launches", Table())
    monkeypatch.setattr(repeats, "latest", Table())
    monkeypatch.setattr(kernel, "_kernels", Table())
    monkeypatch.setattr(workspace, "_workspaces", {})
    for name, empty in (("_reserves", {}), ("clearing", []), ("wanted", set()), ("_idle", {}), ("_lent", [])):
        monkeypatch.setattr(graphs, name, empty)
    monkeypatch.setattr(graphs, "_mark", lambda stream: SimpleNamespace(done=True))
    monkeypatch.setattr(graphs, "_tie", fake.tie)
    monkeypatch.setattr(workspace.cupy.cuda.runtime, "mallocAsync", fake.malloc_async)
    monkeypatch.setattr(workspace.cupy.cuda.runtime, "freeAsync", fake.free_async)
    monkeypatch.setattr(workspace.cupy.cuda.runtime, "streamIsCapturing", lambda stream: stream in fake.capturing)
    monkeypatch.setattr(workspace.cupy.cuda.runtime, "memsetAsync", fake.clear)
    monkeypatch.setattr(cuda, "_target", lambda index: simulator.SMALL_GPU)
    monkeypatch.setattr(kernel, "load_kernel", fake.load_kernel)
    monkeypatch.setattr(kernel, "load_driver", lambda: kernel.Driver(fake.launch, fake.overlaps))
    monkeypatch.setattr(cuda, "_make_context", fake.make_context)
    monkeypatch.setattr(cuda, "_this_thread", cuda._Thread())
    monkeypatch.setattr(cuda, "current_device", lambda: fake.current_device)
    monkeypatch.setattr(cuda, "_set_device", lambda index: setattr(fake, "current_device", index))
    with simulator.small_units():
        yield fake


def fake_gpu_of_torch(monkeypatch):
    """The same for torch: all tensors claim to be on the fake GPU."""
    import torch

    from cuscan.autograd import torch_recording
    from cuscan.interop import torch as interop

    for name in ("_tapes", "_recordings"):
        monkeypatch.setattr(torch_recording, name, Table())
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    monkeypatch.setattr(torch.Tensor, "get_device", lambda _: 0)
    monkeypatch.setattr(interop, "_TORCH_DEVICES", {Device("cuda", 0): torch.device("cpu")})
    monkeypatch.setattr(interop, "raw_stream", lambda _: 0)
    monkeypatch.setattr(interop.LIBRARY, "_kinds", Table())
    yield from fake_gpu(monkeypatch)


def on_gpu(array, device=0):
    """A copy of a NumPy array on the GPU, with the same strides."""
    array = np.asarray(array)
    if array.size == 0:
        moved = array.copy().view(GpuArray)
    else:
        low = sum(min(s * (n - 1), 0) for s, n in zip(array.strides, array.shape, strict=True))
        high = sum(max(s * (n - 1), 0) for s, n in zip(array.strides, array.shape, strict=True))
        raw = aligned(high - low + array.itemsize + 16)
        shift = (array.ctypes.data + low) % 16  # the alignment is part of the layout
        moved = np.ndarray(array.shape, array.dtype, raw, shift - low, array.strides)
        moved[...] = array
        moved = moved.view(GpuArray)
    moved.device = device
    return moved


def check(gpu, array, **call):
    got = cuscan.scan(on_gpu(array), **{k: on_gpu(v) if isinstance(v, np.ndarray) else v for k, v in call.items()})
    want = cuscan.scan(array, **call)
    assert type(got) is GpuArray and got.dtype == want.dtype and got.strides == want.strides
    np.testing.assert_array_equal(np.asarray(got), want)


def values(shape, dtype="float32", seed=0):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 100, shape).astype(dtype)
