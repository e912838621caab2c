"""Launches on buffers of XLA (`backends/xla_gpu.py`) without a GPU: JAX's CPU calls back, kernels are simulated."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import simulator

import cuscan

jax = pytest.importorskip("jax", reason="JAX is not installed")
pytest.importorskip("cupy", reason="CuPy is not installed, and the launch path is built on it")
if not simulator.HAS_COMPILER:
    pytest.skip("g++, which compiles the simulated kernels, is missing", allow_module_level=True)

import jax.numpy as jnp  # noqa: E402
from fake_gpu import aligned, values  # noqa: E402
from jax_cases import leaves  # noqa: E402

from cuscan.autograd import jax_lowering  # noqa: E402
from cuscan.backends import workspace, xla_gpu  # noqa: E402

FLAGS, KEYS, OFFSETS = values(5000, "int8") > 95, values(5000, "int8") // 50, np.array([0, 0, 900, 5000], np.int32)


@pytest.fixture
def launches(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The fake GPU behind JAX's CPU; all work is queued in one stream of XLA."""
    gpu.current_stream = 77

    def make_runner(device: str, *arguments: Any, validate: bool) -> Callable[..., None]:
        runner = xla_gpu.OnGpu(*arguments, validate)
        return lambda context, written, *read: runner(SimpleNamespace(stream=77), written, *read)

    def scratch(self: Any, nbytes: int, device: Any) -> Any:
        memory = aligned(nbytes)
        memory[:] = 0xA5  # as after cudaMalloc
        return SimpleNamespace(ptr=memory.ctypes.data, memory=memory)

    monkeypatch.setattr(jax_lowering, "make_runner", make_runner)
    monkeypatch.setattr(xla_gpu, "_get_device", lambda: gpu.current_device)
    monkeypatch.setattr(xla_gpu, "_set_device", lambda index: setattr(gpu, "current_device", index))
    monkeypatch.setattr(xla_gpu.Memory, "scratch", scratch)
    return gpu


def check(call: Callable[..., Any], *arrays: Any) -> None:
    """A program gives NumPy's bits, in its first run and in its second."""
    program = jax.jit(functools.partial(call))  # a new function, for which JAX has no program
    expected = call(*arrays)
    for _ in range(2):
        got = program(*map(jnp.asarray, arrays))
        for one, other in zip(leaves(got), leaves(expected), strict=True):
            np.testing.assert_array_equal(np.asarray(one), np.asarray(other).astype(one.dtype))


def test_programs_have_the_bits_of_the_host(launches: Any) -> None:
    check(cuscan.cumsum, values((2, 20_000)))
    assert [stream for _, stream, _ in launches.launches] == [77, 77]
    assert len({pointers[-1] for _, _, pointers in launches.launches}) == 1  # one workspace
    check(lambda x: cuscan.cumsum(x, axis=0, initial=7), values((700, 3)))
    check(lambda x: cuscan.cumsum(x, exclusive=True).astype("float32"), np.ones((3, 900), jnp.bfloat16))


def test_positions_are_stored_as_jax_has_them(launches: Any) -> None:
    check(lambda x: cuscan.cummax(x, return_indices=True, reverse=True), values((2, 5000)))
    assert [operand.type for operand in launches.loads[-1].results] == ["float32", "int32"]


def test_all_arrays_in_their_places(launches: Any) -> None:
    def recurrence(a: Any, b: Any, h: Any, offsets: Any) -> Any:
        return cuscan.linear_recurrence(a, b, initial=h, offsets=offsets, return_last=True, return_carry=True)

    check(recurrence, values((2, 1)) / 4, values((2, 5000)), values((2,)), OFFSETS)
    assert len(launches.starts) == 2 and {key[-1] for key in workspace._workspaces} == {"states", "flags"}

    def totals(x: Any, mask: Any, keys: Any) -> Any:
        carry = cuscan.total(x, "max", mask=mask, keys=keys, return_indices=True)
        return carry, cuscan.cummax(x, mask=mask, keys=keys, carry=carry, return_indices=True)

    check(totals, values((2, 5000)), FLAGS, KEYS)


def test_views_of_memory_that_are_not_aligned_to_vectors(launches: Any) -> None:
    """XLA's own arrays are aligned; a program may get others."""
    request = jax_lowering.request_of(
        jax_lowering.Call(cuscan.request.call.Flags(cuscan.request.call.find_operator("add")), ("x",)), [jnp.ones(900)]
    )
    runner = xla_gpu.OnGpu(request, ("x",), None, False)
    base, out = aligned(4000).view(np.float32), aligned(4000).view(np.float32)
    base[:] = values(1000)
    for start in (0, 1, 3, 0):
        runner(SimpleNamespace(stream=77), (Buffer(out[2:902]),), Buffer(base[start : start + 900]))
        np.testing.assert_array_equal(out[2:902], cuscan.cumsum(base[start : start + 900]))
    assert len(runner._launches) == 4  # one of them for aligned arrays


class Buffer:
    """A buffer as XLA passes it."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self) -> Any:
        return self._array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def test_kernels_are_compiled_with_the_program(launches: Any) -> None:
    program = jax.jit(lambda x: cuscan.cumsum(x)).lower(jnp.ones(300)).compile()  # noqa: PLW0108
    assert len(launches.loads) == 1 and not launches.launches
    assert program(jnp.ones(300))[-1] == 300 and len(launches.loads) == 1


def test_of_nothing(launches: Any) -> None:
    x, h = np.zeros((2, 0), np.float32), values(2)
    check(lambda x: cuscan.cumsum(x, include_initial=True, initial=3), x)
    check(lambda x, h: cuscan.linear_recurrence(0.5, x, initial=h, return_last=True, return_carry=True), x, h)
    check(lambda x: cuscan.total(x, "min", initial=5), x)
    check(cuscan.cumsum, np.zeros((0, 3), np.float32))


def test_another_device_is_current_meanwhile(launches: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    launches.current_device = 3
    check(cuscan.cumsum, values((2, 300)))
    assert launches.current_device == 3 and {device for device, _, _ in launches.launches} == {0}


def test_offsets_are_fetched_where_they_are_validated(launches: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []

    def copy(to: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        assert (kind, stream) == (2, 77)
        ctypes.memmove(to, source, nbytes)

    monkeypatch.setattr(xla_gpu.cupy.cuda.runtime, "memcpyAsync", copy)
    monkeypatch.setattr(xla_gpu.cupy.cuda.runtime, "streamSynchronize", waited.append)
    program = jax.jit(lambda x, offsets: cuscan.cumsum(x, offsets=offsets, validate=True))
    x = jnp.ones(5000)
    assert program(x, jnp.asarray(OFFSETS))[-1] == 4100 and waited == [77]
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="offsets must begin with 0"):
        jax.block_until_ready(program(x, jnp.asarray(OFFSETS + 1)))
