"""Gradients of scans of torch tensors: compared with finite differences, at special values, and their memory."""

from __future__ import annotations

import functools
import itertools
import math
import weakref
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import cuscan
from cuscan import ScanTypeError, backends

torch = pytest.importorskip("torch", reason="torch is not installed")

from large_arrays import results_are_read  # noqa: E402, F401  pytest applies it to this module
from torch.autograd import forward_ad, gradcheck, gradgradcheck  # noqa: E402

from cuscan.autograd import torch_recording  # noqa: E402
from cuscan.autograd.torch import TorchNamespace  # noqa: E402
from cuscan.linearised import joined  # noqa: E402

SHAPE = (2, 4)
FLOAT_OPS = ["add", "mul", "max", "min", "logaddexp"]
# A user operator: (x, y) -> x + y + x y, which is mul in disguise.
PROBABLE = cuscan.Operator(
    "probable",
    "earlier + later + earlier * later",
    0,
    numpy=lambda earlier, later: earlier + later + earlier * later,
    vjp=lambda earlier, later, g: (g * (1 + later), g * (1 + earlier)),
)


def draw(seed: int, *shapes: tuple[int, ...], dtype: Any = None) -> list[Any]:
    """Tensors that require gradients, with elements far apart."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for shape in shapes:
        spread = torch.randperm(math.prod(shape), generator=generator).reshape(shape) / 4 - 0.9
        x = spread.to(torch.float64)
        if dtype is not None and dtype.is_complex:
            x = torch.complex(x, torch.rand(shape, generator=generator, dtype=torch.float64))
        made.append(x.requires_grad_())
    return made


def flags(seed: int, shape: tuple[int, ...] = SHAPE, share: float = 0.5) -> Any:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share


def check(function: Any, *inputs: Any) -> None:
    """First and second derivatives, backward and forward, one at a time and in batches."""
    with np.errstate(all="ignore"):
        assert gradcheck(function, inputs, check_forward_ad=True, check_batched_grad=True, fast_mode=True)
        assert gradgradcheck(function, inputs, fast_mode=True)


CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "reverse": {"reverse": True, "axis": 0},
    "exclusive": {"exclusive": True, "initial": -0.3},
    "before": {"include_initial": True, "mask": flags(1), "initial": -0.3},
    "total": {"include_initial": True, "exclusive": True, "reverse": True, "initial": 0.7},
    "reset": {"reset": flags(2), "initial": 0.2},
    "reset-rows": {"reset": flags(3, (2, 1)), "reverse": True, "exclusive": True, "initial": 0.2},
    "offsets": {"offsets": torch.tensor([0, 1, 1, 4]), "reverse": True},
    "along": {"axis": 0, "mask": torch.tensor([True, False]), "reset": torch.tensor([False, True]), "initial": -0.3},
    "keys": {"keys": torch.tensor([7, 7, 1, 1]), "include_initial": True, "initial": -0.2, "mask": flags(4)},
    "segments-total": {"reset": flags(5), "include_initial": True, "exclusive": True, "initial": 0.6, "reverse": True},
    "offsets-total": {"offsets": torch.tensor([0, 3, 4]), "include_initial": True, "exclusive": True, "initial": 0.6},
}


# All flags with one operator of each kind of step; only `pytest --full` runs the rest.
PAIRS = [(op, name) for op in [*FLOAT_OPS, PROBABLE] for name in CALLS]
BRIEF = {
    ("add", "total"),
    ("add", "offsets"),
    ("add", "before"),
    ("min", "keys"),
    ("logaddexp", "exclusive"),
    ("logaddexp", "reset"),
}


def name_of(value: Any) -> str:
    return value if isinstance(value, str) else value.name


def is_brief(op: Any, name: str) -> bool:
    return op == "mul" or (op, name) in BRIEF or (op == "max" and "s" in name) or (op is PROBABLE and name == "before")


@pytest.mark.parametrize(
    "op, name",
    [pytest.param(*pair, marks=[] if is_brief(*pair) else [pytest.mark.full]) for pair in PAIRS],
    ids=name_of,
)
def test_every_flag(op: Any, name: str) -> None:
    check(lambda x: cuscan.scan(x, op, **CALLS[name]), *draw(len(name), SHAPE))


@pytest.mark.parametrize("op", ["add", "mul"])
def test_complex_numbers(op: str) -> None:
    for call in ({}, {"exclusive": True, "reverse": True, "mask": flags(6), "initial": 1 + 2j}):
        check(lambda x, call=call: cuscan.scan(x, op, **call), *draw(1, SHAPE, dtype=torch.complex128))
    check(lambda x: cuscan.scan(x, op, dtype=torch.complex128), *draw(2, SHAPE))


def test_complex_recurrences() -> None:
    check(cuscan.linear_recurrence, *draw(3, (4, 1), (4, 3), dtype=torch.complex128))
    check(functools.partial(cuscan.linear_recurrence, 0.5 + 0.5j), *draw(3, (4, 3), dtype=torch.complex128))
    check(functools.partial(cuscan.linear_recurrence, dtype=torch.complex128), *draw(4, SHAPE, SHAPE))
    a, b, initial = draw(5, SHAPE, SHAPE, (2,), dtype=torch.complex128)
    check(lambda a, b, initial: cuscan.linear_recurrence(a, b, initial=initial), a, b, initial)
    check(functools.partial(cuscan.cumprod, initial=0.5 - 1j), a)


def test_initial_states_that_broadcast() -> None:
    for axis, shape in itertools.product((0, 1, 2), ((), (2,), (3, 1))):
        check(
            lambda a, b, initial, axis=axis: cuscan.linear_recurrence(a, b, axis=axis, initial=initial),
            *draw(axis, (3, 3, 2) if axis < 2 else (3, 2, 2), (3, 3, 2) if axis < 2 else (3, 2, 2), shape),
        )


RECURRENCES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "plain": (SHAPE, {}),
    "reverse": (SHAPE, {"reverse": True, "axis": 0}),
    "channels": ((2, 1), {"reset": flags(7, (4,))}),
    "in-time": ((4,), {"reset": flags(8), "reverse": True}),
    "scalar": ((), {"offsets": torch.tensor([0, 2, 4])}),
    "keys": (SHAPE, {"keys": torch.tensor([1, 1, 1, 2]), "reverse": True}),
}


@pytest.mark.parametrize("name", RECURRENCES)
@pytest.mark.parametrize("carried", [False, True])
def test_recurrences(name: str, carried: bool) -> None:
    shape, call = RECURRENCES[name]
    if not carried:
        return check(lambda a, b: cuscan.linear_recurrence(a, b, **call), *draw(5, shape, SHAPE))
    rows = (4,) if call.get("axis") == 0 else (2,)

    def states(a: Any, b: Any, initial: Any) -> Any:
        return cuscan.linear_recurrence(a, b, initial=initial, return_last=True, **call)

    check(states, *draw(6, shape, SHAPE, rows))


def test_parts_of_a_recurrence() -> None:
    (b,) = draw(7, SHAPE)
    check(lambda b: cuscan.linear_recurrence(0.5, b, initial=2.0, return_last=True), b)
    check(lambda b: cuscan.linear_recurrence(0.5, b, return_last=True)[1], b)
    a, initial = draw(8, SHAPE, ())
    check(lambda a: cuscan.linear_recurrence(a, b.detach(), initial=initial.detach()), a)
    check(lambda initial: cuscan.linear_recurrence(0.5, b.detach(), initial=initial, reverse=True), initial)


def test_named_functions() -> None:
    (x,) = draw(9, (5,))
    for function in (cuscan.cumsum, cuscan.nancumprod, cuscan.cumulative_sum, cuscan.logcumsumexp, cuscan.cummin):
        check(function, x)
    values, index = cuscan.cummax(x, return_indices=True)
    assert values.requires_grad and not index.requires_grad
    check(lambda x: cuscan.cummax(x, return_indices=True, exclusive=True, initial=-5.0)[0], x)


def random_call(rng: np.random.Generator, shape: tuple[int, ...]) -> dict[str, Any]:
    """Random flags."""
    call: dict[str, Any] = {name: bool(rng.integers(2)) for name in ("reverse", "exclusive", "include_initial")}
    call["axis"] = int(rng.integers(-len(shape), len(shape)))
    call["initial"] = float(rng.uniform(-0.5, 0.5))
    length = shape[call["axis"]]
    if rng.integers(2):
        call["mask"] = torch.from_numpy(rng.random(shape) < 0.7)
    segments = {
        "reset": torch.from_numpy(rng.random(shape) < 0.4),
        "keys": torch.from_numpy(rng.integers(0, 2, length)),
        "offsets": torch.tensor([0, *sorted(rng.integers(0, length + 1, 2)), length]),
    }
    kind = rng.choice(["", *segments])
    return call | ({kind: segments[kind]} if kind else {})


@pytest.mark.full
@pytest.mark.parametrize("seed", range(120))
def test_random_calls(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(1, 4)))
    call = random_call(rng, shape)
    op = [*FLOAT_OPS, PROBABLE][seed % 6]
    check(lambda x: cuscan.scan(x, op, **call), *draw(seed, shape))
    call = {key: call[key] for key in ("axis", "reverse", "reset", "keys", "offsets") if key in call}
    narrow = tuple(int(n) if rng.integers(2) else 1 for n in shape)
    rows = tuple(np.delete(shape, call["axis"]))
    check(
        lambda a, b, initial: cuscan.linear_recurrence(a, b, initial=initial, return_last=True, **call),
        *draw(seed + 1, narrow, shape, rows),
    )


# ---- special values --------------------------------------------------------------------------------------------------


def gradient(function: Any, x: Any, weights: Any = None) -> Any:
    """The gradient of the weighted sum of the results."""
    x = torch.as_tensor(x).detach().clone().requires_grad_()
    y = function(x)
    y.backward(torch.ones_like(y) if weights is None else torch.as_tensor(weights).to(y.dtype))
    return x.grad


def test_products_with_zeros() -> None:
    x = torch.tensor([2.0, 0.0, 3.0, 0.0, 5.0])
    assert gradient(cuscan.cumprod, x).tolist() == [1, 2 + 6, 0, 0, 0]
    (second,) = torch.autograd.functional.hessian(lambda x: cuscan.cumprod(x).sum(), x)[1:2]
    assert second.tolist() == [1 + 3, 0, 2, 6 + 30, 0]


def test_exponentials_of_minus_infinity() -> None:
    inf = float("inf")
    assert gradient(cuscan.logcumsumexp, [-inf, -inf, 0.0, 0.0]).tolist() == [0, 0, 1.5, 0.5]
    assert gradient(cuscan.logcumsumexp, [-inf, -inf]).tolist() == [0, 0]
    assert gradient(cuscan.logcumsumexp, [0.0, inf, 0.0]).tolist() == [1, 2, 0]
    assert gradient(functools.partial(cuscan.logcumsumexp, exclusive=True), [-inf, 0.0, 0.0]).tolist() == [0, 1, 0]


def test_exponentials_far_apart() -> None:
    x = torch.linspace(-1e5, 1e5, 9, dtype=torch.float64)
    assert gradient(cuscan.logcumsumexp, x).tolist() == [1] * 9
    assert gradient(cuscan.logcumsumexp, x.flip(0)).tolist() == [9] + [0] * 8


@pytest.mark.parametrize("ties, expected", [("first", [1 + 2 + 3, 0, 0, 4]), ("last", [1, 2, 3, 4])])
def test_ties_go_where_the_index_points(ties: str, expected: list[int]) -> None:
    function = functools.partial(cuscan.cummax, return_indices=True, ties=ties)
    assert gradient(lambda x: function(x)[0], [4.0, 4.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0]).tolist() == expected


def test_what_an_initial_value_hides_has_no_gradient() -> None:
    assert gradient(lambda x: cuscan.cummax(x, initial=2.5), [1.0, 3.0, 2.0]).tolist() == [0, 2, 0]


def test_what_is_skipped_has_no_gradient() -> None:
    nan = float("nan")
    x, mask = torch.tensor([2.0, nan, 3.0]), torch.tensor([True, False, True])
    for op, expected in (("add", [3, 0, 1]), ("mul", [1 + 1 + 3, 0, 2]), ("max", [2, 0, 1])):
        assert gradient(lambda x, op=op: cuscan.scan(x, op, skipna=True), x).tolist() == expected
        assert gradient(lambda x, op=op: cuscan.scan(x, op, mask=mask), x).tolist() == expected
    assert gradient(cuscan.nancumsum, x).tolist() == [3, 0, 1]
    assert gradient(lambda x: cuscan.logcumsumexp(x, skipna=True), x)[1] == 0


def test_infinite_cotangents_stay_where_they_are() -> None:
    inf = float("inf")
    assert gradient(cuscan.cummax, [1.0, 0.0, 2.0], [1.0, 1.0, inf]).tolist() == [2, 0, inf]
    reset = torch.tensor([False, False, True])
    assert gradient(lambda x: cuscan.cumprod(x, reset=reset), [1.0, 2.0, 3.0], [1.0, 1.0, inf]).tolist() == [3, 1, inf]


@pytest.mark.parametrize("op", ["add", "mul"])
def test_one_element_that_a_segment_starts_with(op: str) -> None:
    reset = torch.tensor([[True, False]])
    check(
        lambda x: cuscan.scan(x, op, axis=0, exclusive=True, include_initial=True, initial=2.0, reset=reset),
        *draw(3, (1, 2)),
    )


@pytest.mark.parametrize("length", [0, 1])
def test_short_axes(length: int) -> None:
    x = torch.ones(2, length, dtype=torch.bfloat16)
    assert gradient(lambda x: cuscan.cumprod(x, initial=-1.5), x).shape == x.shape
    for op in FLOAT_OPS:
        assert gradient(lambda x, op=op: cuscan.scan(x, op), torch.ones(2, length)).tolist() == [[1.0] * length] * 2
    a, b = torch.full((2, length), 3.0), torch.ones(2, length)
    initial = torch.ones(2, requires_grad=True)
    cuscan.linear_recurrence(a, b, initial=initial, return_last=True)[1].sum().backward()
    assert initial.grad.tolist() == [3.0**length] * 2


# ---- dtypes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("op", [*FLOAT_OPS, "linear_recurrence"])
def test_narrow_types(op: str, dtype: Any) -> None:
    """As exact as the result: each element is rounded once, and so are sums in float32."""
    rng = torch.Generator().manual_seed(0)
    x = (torch.rand((2, 60), generator=rng) * 0.5 + 0.5).to(dtype)
    weights = torch.rand((2, 60), generator=rng).to(dtype)
    function = {"linear_recurrence": lambda x: cuscan.linear_recurrence(x, x)}.get(op, lambda x: cuscan.scan(x, op))
    got, expected = gradient(function, x, weights), gradient(function, x.double(), weights.double())
    assert got.dtype == dtype
    roundings = 6 if op == "linear_recurrence" else 2
    bound = roundings * torch.finfo(dtype).eps * expected.abs() + 500 * torch.finfo(torch.float32).eps
    assert ((got.double() - expected).abs() <= bound).all()


def test_converted_results() -> None:
    x = torch.ones(3, dtype=torch.bfloat16)
    assert gradient(lambda x: cuscan.cumsum(x, dtype=torch.float64), x).dtype == torch.bfloat16
    assert not cuscan.cumsum(x.requires_grad_(), dtype=torch.int32).requires_grad
    with forward_ad.dual_level():
        y = cuscan.cumsum(forward_ad.make_dual(x.detach(), x.detach()), dtype=torch.int32)
        assert y.tolist() == [1, 2, 3] and forward_ad.unpack_dual(y).tangent is None


# ---- memory and launches ---------------------------------------------------------------------------------------------


def saved_by(function: Any) -> list[Any]:
    """The tensors that a call saves for its backward."""
    kept: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        result = function()
    return [tensor.data_ptr() for tensor in kept if result is not None]


def test_what_is_saved() -> None:
    a, x, initial = (torch.ones(shape, requires_grad=True) for shape in ((2, 3), (2, 3), (2,)))
    mask, keys = torch.ones(2, 3, dtype=torch.bool), torch.ones(3)

    def saves(function: Any, *expected: Any) -> bool:
        return sorted(saved_by(function)) == sorted(tensor.data_ptr() for tensor in expected)

    assert saves(lambda: cuscan.cumsum(x))
    assert saves(lambda: cuscan.cumsum(x, exclusive=True, reverse=True, include_initial=True, initial=2))
    assert saves(lambda: cuscan.cumsum(x, mask=mask, keys=keys), mask, keys)
    assert saves(lambda: cuscan.nancumsum(x), x)
    for op in ("max", "min", PROBABLE):
        assert saves(functools.partial(cuscan.scan, x, op), x)
    assert saves(lambda: cuscan.cummax(x, return_indices=True), x)
    assert saves(lambda: cuscan.linear_recurrence(a.detach(), x, initial=initial), a)
    assert saves(lambda: cuscan.linear_recurrence(0.5, x))
    assert saves(lambda: cuscan.linear_recurrence(a, x, initial=initial, keys=keys), a, x, initial, keys)
    half = x.detach().half().requires_grad_()
    assert saves(lambda: cuscan.cumprod(half), half)  # its result has too few bits
    assert saves(lambda: cuscan.cumprod(x, dtype=torch.int64), x)  # no derivative


def test_results_are_saved_in_place_of_another_scan() -> None:
    a, x, initial = (torch.ones(shape, requires_grad=True) for shape in ((2, 3), (2, 3), (2,)))
    for op in ("mul", "logaddexp"):
        results = []
        saved = saved_by(lambda op=op, results=results: results.append(cuscan.scan(x, op)) or results[0])
        assert sorted(saved) == sorted([x.data_ptr(), results[0].data_ptr()])
    saved = saved_by(lambda: results.append(cuscan.linear_recurrence(a, x, initial=initial)) or results[-1])
    assert sorted(saved) == sorted([a.data_ptr(), initial.data_ptr(), results[-1].data_ptr()])


def test_nothing_else_stays_alive() -> None:
    x = torch.ones(3, requires_grad=True)
    between = x * 2
    watch = weakref.ref(between)
    y = cuscan.cumsum(between)
    del between
    assert watch() is None and y.requires_grad


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("first", [2, torch.tensor(3.0), torch.tensor([1.0, 2, 3])])
@pytest.mark.parametrize("axis", [-1, -2, -3])
def test_products_with_shifted_states(axis: int, first: Any, reverse: bool) -> None:
    shape = (3, 3, 3)
    x, states = torch.rand(shape), torch.rand(shape)
    first = first if isinstance(first, int) or not first.ndim else first.unsqueeze(axis) if axis > -3 else first
    expected = x * joined(states, first, reverse, axis, TorchNamespace)
    with torch.no_grad():
        for order in itertools.permutations(range(3)):
            back = [order.index(i) for i in range(3)]
            one, other = (each.permute(order).contiguous().permute(back) for each in (x, states))
            for pair in ((one, states), (x, other), (one, other)):
                product = TorchNamespace.times_shifted(*pair, first, reverse, axis)
                assert torch.equal(product, expected)


def test_batches_of_cotangents_of_shifted_states() -> None:
    a, b = draw(6, SHAPE, SHAPE)
    for y in (cuscan.cumprod(a), cuscan.linear_recurrence(a, b)):

        def pulled(g: Any, y: Any = y) -> Any:
            return torch.autograd.grad(y, a, g, retain_graph=True)[0]

        rows = torch.eye(y.numel(), dtype=y.dtype).reshape(-1, *y.shape)
        torch.testing.assert_close(torch.func.vmap(pulled)(rows), torch.stack([pulled(row) for row in rows]))


@pytest.mark.parametrize("initial", [np.complex64(2j), np.array(2.0), 2**70, Fraction(1, 3), True, torch.tensor(3.0)])
def test_initial_numbers_of_any_kind(initial: Any) -> None:
    a, b = draw(7, SHAPE, SHAPE, dtype=torch.complex128 if isinstance(initial, np.complex64) else None)
    number = complex(initial) if a.is_complex() else float(initial)

    def gradients(initial: Any) -> list[Any]:
        results = [cuscan.cumprod(a, initial=initial)]
        if not isinstance(initial, np.ndarray):  # an array of states must be of torch
            results.append(cuscan.linear_recurrence(a, b, initial=initial))
        return [torch.autograd.grad(y, a, torch.ones_like(y))[0] for y in results]

    torch.testing.assert_close(gradients(initial), gradients(number)[: len(gradients(initial))], rtol=0, atol=0)


def test_transforms_scan_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product with shifted states would copy them."""
    scans: list[Any] = []
    run = backends.run
    monkeypatch.setattr(backends, "run", lambda *call: scans.append(call) or run(*call))
    torch.func.grad(lambda x: cuscan.cumprod(x).sum())(torch.ones(3))
    assert len(scans) == 3


def test_small_arrays_scan_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_recording, "RESULT_BYTES", 4 * 6)
    scans: list[Any] = []
    run = backends.run
    monkeypatch.setattr(backends, "run", lambda *call: scans.append(call) or run(*call))
    for n, count in ((5, 2), (6, 1)):
        y = cuscan.cumprod(torch.ones(n, requires_grad=True))
        scans.clear()
        y.sum().backward()
        assert len(scans) == count


def test_results_that_derivatives_read_stay_as_they_are() -> None:
    a, b = (torch.ones(3, requires_grad=True) for _ in range(2))
    for y in (cuscan.cumprod(a), cuscan.logcumsumexp(a), cuscan.linear_recurrence(a, b)):
        y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
    for y in (cuscan.cumsum(a), cuscan.cummax(a), cuscan.linear_recurrence(0.5, b)):
        y.mul_(2).sum().backward()


@pytest.mark.parametrize(
    "scans, function",
    [
        (1, cuscan.cumsum),
        (1, lambda x: cuscan.cumsum(x, exclusive=True, include_initial=True, keys=torch.ones(3))),
        (1, cuscan.cumprod),
        (1, lambda x: cuscan.cumprod(x, exclusive=True, reverse=True, keys=torch.ones(3))),
        (1, lambda x: cuscan.cumprod(x, include_initial=True)),
        (2, lambda x: cuscan.cumprod(x, keys=torch.ones(3))),
        (2, lambda x: cuscan.cumprod(x.half()).float()),
        (2, cuscan.cummax),
        (2, cuscan.logcumsumexp),
        (1, lambda x: cuscan.logcumsumexp(x, include_initial=True)),
        (1, lambda x: cuscan.linear_recurrence(0.5, x, initial=x[..., 0], return_last=True)[1]),
        (1, lambda x: cuscan.linear_recurrence(x, x)),
        (2, lambda x: cuscan.linear_recurrence(x, x, reset=torch.ones(3, dtype=torch.bool))),
    ],
)
def test_how_many_scans_a_backward_is(scans: int, function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from cuscan.autograd import torch as routes

    y = function(torch.ones((2, 3), requires_grad=True))
    runs: list[Any] = []
    run = routes.backends.run
    monkeypatch.setattr(routes.backends, "run", lambda *call: runs.append(call) or run(*call))
    y.sum().backward()
    assert len(runs) == scans


LENGTH = 1 << 12
ELEMENTWISE = ["add", "copy_", "div", "eq", "exp", "fill_", "isnan", "mul", "ne", "neg", "sub", "where"]
OTHER_KERNELS = {f"aten::{name}" for name in [*ELEMENTWISE, "arange", "cat", "sum"]}


def recurrence_of_b(b: Any) -> Any:
    return cuscan.linear_recurrence(torch.full_like(b, 0.5), b)


# For each backward: the most arrays of elements that it holds, including its result; its kernels besides scans.
COSTS: dict[str, tuple[Callable[[Any], Any], float, int]] = {
    "add": (cuscan.cumsum, 1, 0),
    "add, other": (lambda x: cuscan.cumsum(x, axis=0, exclusive=True, include_initial=True), 1, 0),
    "add, masked": (lambda x: cuscan.cumsum(x, mask=torch.ones_like(x, dtype=torch.bool)), 2, 1),
    "add, reset": (lambda x: cuscan.cumsum(x, reset=torch.zeros(2, 1, dtype=torch.bool, device=x.device)), 1, 1),
    "recurrence of b": (recurrence_of_b, 1, 0),
    "recurrence with a last state": (lambda b: cuscan.linear_recurrence(0.5, b, return_last=True)[0], 1, 0),
    # A product in two parts, and the number that one of them takes, which is a tensor on the CPU.
    "recurrence": (lambda x: cuscan.linear_recurrence(x, x.detach()), 2, 3),
    "mul": (cuscan.cumprod, 2, 3),
    "max": (cuscan.cummax, 4.25, 3),
    "logaddexp": (cuscan.logcumsumexp, 4.25, 12),
}


def costs_of(backward: Callable[[], Any]) -> tuple[float, int]:
    """The most bytes of tensors that a function holds at once, and how many of torch's own kernels it launches."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        backward()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    launched = [e for e in profile.events() if e.name in OTHER_KERNELS]
    outermost = [e for e in launched if e.cpu_parent is None or e.cpu_parent.name not in OTHER_KERNELS]
    return float(np.cumsum([0, *held]).max()), len(outermost)


@pytest.mark.parametrize("name", COSTS)
def test_what_a_backward_costs(name: str) -> None:
    function, arrays, launches = COSTS[name]
    x = torch.rand(2, LENGTH).requires_grad_()
    y = function(x)
    weights = torch.ones_like(y)
    torch.autograd.grad(y, x, weights, retain_graph=True)
    torch_recording._tapes.clear()
    for _ in range(3):  # before steps are listed, while they are listed, and when they run again
        peak, launched = costs_of(lambda: torch.autograd.grad(y, x, weights, retain_graph=True))
        assert peak <= (arrays + 0.05) * 4 * x.numel() and launched <= launches
    assert None not in torch_recording._tapes.values()


@pytest.mark.gpu
@pytest.mark.parametrize("name", COSTS)
def test_what_a_backward_holds_on_a_gpu(name: str) -> None:
    function, arrays, _ = COSTS[name]
    x = torch.rand(2, 1 << 20, device="cuda").requires_grad_()
    y = function(x)
    weights = torch.ones_like(y)
    torch.autograd.grad(y, x, weights, retain_graph=True)
    torch_recording._tapes.clear()
    for _ in range(5):  # the last two are replays
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        torch.autograd.grad(y, x, weights, retain_graph=True)
        assert torch.cuda.max_memory_allocated() - before <= (arrays + 0.05) * 4 * x.numel()


# ---- user operators --------------------------------------------------------------------------------------------------


def test_a_vjp_has_to_be_callable_and_of_one_number() -> None:
    with pytest.raises(ScanTypeError, match="vjp must be callable"):
        cuscan.Operator("bad", "later", 0, vjp=3)
    with pytest.raises(ScanTypeError, match="state one number"):
        cuscan.Operator("bad", "return later;", (0, 0), state={"a": "int8", "b": "int8"}, vjp=lambda *_: None)


def test_a_wrong_vjp_is_noticed() -> None:
    wrong = cuscan.Operator(
        "wrong", "earlier * later", 1, numpy=np.multiply, vjp=lambda earlier, later, g: (g * later, g)
    )
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        check(lambda x: cuscan.scan(x, wrong), *draw(1, SHAPE))
