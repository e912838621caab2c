"""JAX arrays: the results of every function, eager and compiled; refused arguments and their errors."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax_cases import CASES, Case, compilations, leaves, wide_types

import cuscan
from cuscan import MissingDependencyError, ScanTypeError, ScanValueError, versions
from cuscan.backends import xla

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent


def draw(case: Case, rows: int = 6, columns: int = 9) -> tuple[Any, ...]:
    return case.draw(np.random.default_rng(0), rows, columns)


def assert_same(got: Any, expected: Any) -> None:
    """The same bits, in JAX's dtypes."""
    for one, other in zip(leaves(got), leaves(expected), strict=True):
        assert isinstance(one, jax.Array)
        assert one.dtype == jax.dtypes.canonicalize_dtype(one.dtype)
        np.testing.assert_array_equal(np.asarray(one), other.astype(one.dtype))


# ---- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_function(case: Case) -> None:
    arrays = draw(case)
    assert_same(jax.jit(case.call)(*arrays), case.call(*arrays))


# The eager calls of the default run, which take different paths.
EAGER = {"cumsum", "offsets", "recurrence of a number", "indices of chunks", "operator of fields"}


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=() if c.name in EAGER else pytest.mark.full, id=c.name) for c in CASES]
)
def test_every_function_eagerly(case: Case) -> None:
    arrays = draw(case)
    assert_same(case.call(*map(jnp.asarray, arrays)), case.call(*arrays))


@pytest.mark.parametrize("wide", [False, True])
def test_carries_lose_what_types_of_32_bits_do_not_hold(wide: bool) -> None:
    first, second = np.random.default_rng(0).standard_normal((2, 3, 35_000)).astype(np.float32)
    _, carry = cuscan.cumsum(first, return_carry=True)
    exact, rounded = (cuscan.cumsum(second, carry=c) for c in (carry, carry.astype(np.float32).astype(np.float64)))
    with wide_types(wide):
        _, carry = cuscan.cumsum(jnp.asarray(first), return_carry=True)
        np.testing.assert_array_equal(cuscan.cumsum(jnp.asarray(second), carry=carry), exact if wide else rounded)
    assert (exact != rounded).any()


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "float16", "bfloat16", "complex64"])
def test_dtypes_are_jax_s(dtype: str) -> None:
    host = np.arange(40).astype(jnp.dtype(dtype))
    got = jax.jit(cuscan.cumsum)(host)
    assert got.dtype == jax.eval_shape(jnp.cumsum, host).dtype
    np.testing.assert_array_equal(got, cuscan.cumsum(host, dtype=got.dtype.name))
    for name in ("cumprod", "cumulative_sum"):
        ours, theirs = (jax.eval_shape(getattr(module, name), host).dtype for module in (cuscan, jnp))
        assert ours == theirs, name


@pytest.mark.parametrize("wide", [False, True])
def test_positions_and_carries_have_the_width_that_jax_is_set_to(wide: bool) -> None:
    def dtypes(call: Any, *arrays: Any) -> list[str]:
        return [array.dtype.name for array in leaves(jax.eval_shape(call, *arrays))]

    x, n = np.ones(3, np.float32), "64" if wide else "32"
    with wide_types(wide):
        assert dtypes(lambda x: cuscan.cummax(x, return_indices=True, return_carry=True), x) == (
            ["float32", f"int{n}", "float32", f"int{n}", f"int{n}"]
        )
        assert dtypes(cuscan.total, x) == [f"float{n}"]
        assert dtypes(cuscan.cumsum, x > 0) == [f"int{n}"]
        assert dtypes(cuscan.cumulative_sum, np.ones(3, np.uint8)) == [f"uint{n}"]
        got = cuscan.cumprod(jnp.arange(5.0) + 0.5)
        assert got.dtype == f"float{n}"
        np.testing.assert_allclose(np.asarray(got), np.cumprod(np.arange(5) + 0.5), rtol=1e-15 if wide else 1e-6)


def test_dtypes_that_jax_does_not_have_are_narrowed_with_its_warning() -> None:
    with pytest.warns(UserWarning, match="float64"):
        assert cuscan.cumsum(jnp.ones(3), dtype=jnp.float64).dtype == "float32"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cuscan.cumsum(jnp.ones(3), dtype=jnp.bfloat16).dtype == jnp.bfloat16


def test_numpy_arrays_beside_are_taken_as_jax_takes_them() -> None:
    x = jnp.ones((3, 4))
    assert_same(cuscan.cumsum(x, mask=np.arange(4) > 1), np.float32([[0, 0, 1, 2]] * 3))
    assert_same(
        cuscan.linear_recurrence(np.float32([[0.5]]), x, initial=np.zeros(3)),
        cuscan.linear_recurrence(0.5, np.asarray(x)),
    )
    assert_same(cuscan.cumsum(x, initial=jnp.float32(2)), 2 + np.cumsum(np.asarray(x), 1))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_no_elements(shape: tuple[int, ...]) -> None:
    host = np.zeros(shape, np.float32)
    x, lines = jnp.asarray(host), shape[:-1]
    assert_same(cuscan.cumsum(x), host)
    assert_same(cuscan.cumsum(x, include_initial=True, initial=3), cuscan.cumsum(host, include_initial=True, initial=3))
    state, carry = np.full(lines, 2, np.float32), np.full(lines, 7.0)
    for given in ({"initial": state}, {"carry": (carry, carry + 1)}):

        def recurrence(x: Any, given: Any) -> Any:
            return cuscan.linear_recurrence(0.5, x, **given, return_last=True, return_carry=True)

        assert_same(jax.jit(recurrence)(x, jax.tree.map(jnp.asarray, given)), recurrence(host, given))
    assert_same(cuscan.total(x, "max"), cuscan.total(host, "max"))


def test_results_lie_where_the_arrays_do() -> None:
    here, there = jax.devices("cpu")[:2]
    for device in (here, there):
        x = jax.device_put(jnp.ones((3, 4)), device)
        calls = (
            cuscan.cumsum,
            lambda x: cuscan.cumsum(x, initial=2, mask=np.ones(4, bool), return_carry=True),
            lambda x: cuscan.linear_recurrence(0.5, x, initial=np.zeros(3), offsets=[0, 4]),
        )
        for call in calls:
            assert {of for way in (call, jax.jit(call)) for y in leaves(way(x)) for of in y.devices()} == {device}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool"])
def test_backends_read_and_write_the_memory_of_arrays(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, where = jnp.ones((3, 500), dtype), []
    run = xla.OnHost.__call__

    def spy(self: Any, context: Any, written: Any, *read: Any) -> None:
        where.extend(np.asarray(buffer).ctypes.data for buffer in (*read, *written))
        run(self, context, written, *read)

    monkeypatch.setattr(xla.OnHost, "__call__", spy)
    y = jax.block_until_ready(jax.jit(lambda x: cuscan.cummax(x, axis=0))(x))
    assert where == [x.unsafe_buffer_pointer(), y.unsafe_buffer_pointer()]


def test_no_copy_is_made() -> None:
    x = jnp.ones((3, 5))
    text = jax.jit(lambda x: cuscan.cumsum(x, axis=0)).lower(x).compile().as_text()
    assert text.count("custom-call(") == 1 and " copy(" not in text and "transpose(" not in text


def test_operators_of_the_user_without_numpy_are_refused_on_the_cpu() -> None:
    op = cuscan.Operator("either", "earlier | later", 0)
    with pytest.raises(ScanTypeError, match="has no numpy= callable"):
        cuscan.scan(jnp.arange(3), op)


# ---- compilation -----------------------------------------------------------------------------------------------------


def test_like_calls_compile_nothing() -> None:
    x, reset = jnp.ones((3, 17)), jnp.ones((3, 17), bool)

    def calls(x: Any, decay: float) -> Any:
        return (
            cuscan.cumsum(x, axis=1, reset=reset),
            cuscan.scan(x, np.add, dim=-1, initial=decay),
            cuscan.linear_recurrence(decay, x, initial=decay),
            jax.jit(cuscan.cumprod)(x),
        )

    assert compilations(calls, x, 0.5) > 0
    assert compilations(calls, x + 1, 0.25) == 0
    assert compilations(lambda: [cuscan.cumsum(x, initial=3), cuscan.scan(x, "sum", initial=jnp.float32(4))]) == 0


def test_segments_start_from_a_number_that_a_program_is_compiled_for() -> None:
    x, offsets = jnp.zeros(1), np.array([0, 1])
    for zero in (0.0, -0.0, 0.0):
        (got,) = cuscan.cumprod(x, offsets=offsets, exclusive=True, initial=zero)
        assert np.signbit(got) == np.signbit(zero)
    cuscan.cumsum(x, offsets=offsets, initial=float("nan"))
    assert compilations(lambda: cuscan.cumsum(x, offsets=offsets, initial=float("nan"))) == 0


def test_a_program_calls_back_once_for_each_scan() -> None:
    text = jax.jit(lambda x: cuscan.cumsum(x) + cuscan.cumsum(x, reverse=True)).lower(jnp.ones(4)).as_text()
    assert text.count("stablehlo.custom_call") == 2


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_deleted_and_donated_arrays_are_jax_s_own_error() -> None:
    x = jnp.ones(3)
    x.delete()
    with pytest.raises(RuntimeError, match="Array has been deleted"):
        cuscan.cumsum(x)


def test_donated_memory_is_used_again() -> None:
    x = jnp.ones(3)
    y = jax.jit(lambda x: cuscan.cumsum(x + 1), donate_argnums=0)(x)
    assert y.tolist() == [2, 4, 6] and x.is_deleted()
    with pytest.raises(RuntimeError, match="has been deleted"):
        cuscan.cumsum(x)


def test_what_is_wrong_is_said_at_the_call() -> None:
    x = jnp.ones((3, 4))
    wrong = [
        (ScanValueError, r"^axis 2 is out of range .*\(cuscan\.cumsum\)", lambda x: cuscan.cumsum(x, axis=2)),
        (ScanTypeError, "^mask must have dtype bool", lambda x: cuscan.cumsum(x, mask=x)),
        (ScanTypeError, "^out= cannot be written", lambda x: cuscan.cumsum(x, out=x)),
        (ScanValueError, "does not fit dtype", lambda x: cuscan.cumsum(x, initial=1e300)),
        (ScanValueError, "mask of shape", lambda x: cuscan.cumsum(x, mask=jnp.ones(5, bool))),
        (ScanTypeError, "carry .* has dtype int32", lambda x: cuscan.cumsum(x, carry=jnp.ones(3, "int32"))),
    ]
    for error, text, call in wrong:
        for way in (call, jax.jit(call), jax.grad(lambda x, call=call: call(x).sum())):
            with pytest.raises(error, match=text):
                way(x)


def test_dtypes_that_are_no_numbers_of_ours() -> None:
    for x in (jnp.ones(3, jnp.float8_e4m3fn), jax.random.split(jax.random.key(0), 3)):
        with pytest.raises(ScanTypeError, match=r"^x is a JAX array of dtype \S+; supported: bool, int8"):
            cuscan.cumsum(x)


def test_offsets_are_checked_where_they_are_known() -> None:
    x = jnp.ones(4)
    with pytest.raises(ScanValueError, match=r"^offsets must begin with 0"):
        cuscan.cumsum(x, offsets=jnp.array([1, 4]))
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="offsets must begin with 0"):
        jax.block_until_ready(jax.jit(lambda x, o: cuscan.cumsum(x, offsets=o))(x, jnp.array([1, 4])))


def test_libraries_do_not_mix() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(ScanTypeError, match=r"^mask is of torch and x of jax; .*: pass jnp\.asarray\(mask\)"):
        cuscan.cumsum(jnp.ones(3), mask=torch.ones(3, dtype=torch.bool))


def test_programs_cannot_be_exported() -> None:
    from jax import export

    with pytest.raises(ScanTypeError, match="cannot be exported"):
        export.export(jax.jit(cuscan.cumsum))(jnp.ones(3))


def test_programs_are_not_kept_on_disk_for_other_processes(tmp_path: Path) -> None:
    """JAX does not store programs with callbacks, so no stored program calls a function that is gone."""
    from jax.experimental.compilation_cache import compilation_cache

    options = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in options}
    x = jnp.ones(7)
    try:
        for name, value in options.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        jax.jit(lambda x: x * 3 + 2)(x)
        (plain,) = tmp_path.glob("*-cache")
        jax.jit(lambda x: cuscan.cumsum(x) * 3)(x)
        assert [*tmp_path.glob("*-cache")] == [plain]
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


def test_the_oldest_version(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuscan import interop

    versions.check_version("jax", jax.__version__)
    monkeypatch.setattr(interop, "_libraries", {})
    monkeypatch.setattr(jax, "__version__", "0.5.3")
    with pytest.raises(MissingDependencyError, match=r"need jax \S+ or later, and version 0.5.3 is installed"):
        cuscan.cumsum(jnp.ones(3))


def test_jax_is_imported_for_arrays_of_jax_alone() -> None:
    code = (
        "import sys, types, numpy, cuscan; sys.modules['jax'] = types.SimpleNamespace(Array=types.FunctionType);"
        "cuscan.cumsum(numpy.ones(3));"
        "print([name for name in sys.modules if name.startswith('cuscan') and 'jax' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
