"""Gradients, transforms and compilation of incoming and outgoing carries, and of totals."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

import cuscan

torch = pytest.importorskip("torch", reason="torch is not installed")

from large_arrays import results_are_read  # noqa: E402, F401  pytest applies it to this module
from torch.autograd import gradcheck, gradgradcheck  # noqa: E402
from torch.func import grad, jvp, vmap  # noqa: E402

SHAPE = (2, 5)
TIMES = cuscan.Operator(
    "times", "earlier * later", 1, numpy=np.multiply, vjp=lambda earlier, later, g: (g * later, g * earlier)
)
OPS = ["add", "mul", "max", "logaddexp", "linear_recurrence", TIMES]


def numbers(*shape: int, seed: int = 0) -> Any:
    """Numbers that are far apart, of both signs."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randperm(int(np.prod(shape)), generator=generator).reshape(shape) / 4.0 - 0.9).double()


def flags(seed: int, shape: tuple[int, ...] = SHAPE) -> Any:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5


SEGMENTS: dict[str, list[dict[str, Any]]] = {
    "": [{}],
    "reset": [{"reset": flags(1)}, {"reset": torch.tensor([False, True, True, False, False])}],
    "offsets": [{"offsets": torch.tensor(each)} for each in ([0, 2, 5], [0, 0, 3, 5, 5])],
    "keys": [{"keys": torch.tensor([1.0, 1, 3, 3, 2])}, {"keys": torch.tensor([[2.0, 1, 1, 2, float("nan")]] * 2)}],
}


def carry_of(op: Any, seed: int, shape: tuple[int, ...] = (2,)) -> tuple[Any, ...]:
    """The fields of a carry with contents."""
    first = numbers(*shape, seed=seed) + 0.3
    if op == "linear_recurrence":
        return first, first + 0.5
    return (first, first.abs() + 0.5) if op == "logaddexp" else (first,)


def run(op: Any, values: tuple[Any, ...], fields: tuple[Any, ...], key: Any = None, **call: Any) -> tuple[Any, ...]:
    """The results of a call with an incoming carry, and the outgoing carry's fields that have derivatives."""
    if fields:
        fields = fields if key is None else (*fields, key)
        call["carry"] = fields if len(fields) > 1 else fields[0]
    if op == "linear_recurrence":
        results = cuscan.linear_recurrence(*values, return_carry=True, **call)
    else:
        results = cuscan.scan(*values, op, return_carry=True, **call)
    *results, carry = results
    carry = carry if isinstance(carry, tuple) else (carry,)
    return (*results, *(carry[:-1] if "keys" in call else carry))


def check(function: Any, *inputs: Any) -> None:
    inputs = tuple(x.detach().clone().requires_grad_() for x in inputs)
    with np.errstate(all="ignore"):
        assert gradcheck(function, inputs, check_forward_ad=True, check_batched_grad=True, fast_mode=True)
        assert gradgradcheck(function, inputs, fast_mode=True)


def values_of(op: Any, seed: int, shape: tuple[int, ...] = SHAPE) -> tuple[Any, ...]:
    return tuple(numbers(*shape, seed=seed + i) for i in range(1 + (op == "linear_recurrence")))


CASES = list(itertools.product(OPS, SEGMENTS))
BRIEF = {("add", "keys"), ("mul", "offsets"), ("max", "reset"), ("logaddexp", ""), ("linear_recurrence", "keys")}


@pytest.mark.parametrize(
    "op, kind",
    [pytest.param(*case, marks=[] if case in BRIEF else [pytest.mark.full]) for case in CASES],
    ids=lambda value: getattr(value, "name", value) or "whole",
)
def test_a_carry_that_comes_in_and_goes_out(op: Any, kind: str) -> None:
    for seed, segments in enumerate(SEGMENTS[kind]):
        for reverse, exclusive in itertools.product((False, True), (False, True)):
            call: dict[str, Any] = {**segments, "reverse": reverse}
            if op != "linear_recurrence":
                call |= {"exclusive": exclusive, "include_initial": exclusive != bool(seed), "initial": 0.4}
            elif exclusive:
                call["return_last"] = True
            values, fields = values_of(op, seed), carry_of(op, seed)
            key = torch.tensor([2.0, 1.0], dtype=torch.float32) if kind == "keys" else None

            def function(*inputs: Any, call: Any = call, many: int = len(values), key: Any = key) -> Any:
                return run(op, inputs[:many], inputs[many:], key, **call)

            check(function, *values, *fields)


@pytest.mark.parametrize("op", [op for op in OPS if op is not TIMES])
def test_a_carry_that_goes_out_alone(op: Any) -> None:
    call = {} if op == "linear_recurrence" else {"mask": flags(3)}
    check(lambda *values: run(op, values, (), **call), *values_of(op, 4))
    check(lambda *values: cuscan.total(values if len(values) > 1 else values[0], op, axis=0), *values_of(op, 5))


def test_parts_of_a_carry() -> None:
    a, b = values_of("linear_recurrence", 6)
    product, h = carry_of("linear_recurrence", 1)
    check(lambda a: cuscan.total((a, b), "linear_recurrence")[0], a)
    check(lambda a: cuscan.total((a, b), "linear_recurrence")[1], a[:, :1])
    check(lambda product: cuscan.total((0.5, b), "linear_recurrence", carry=(product, h)), product)
    check(lambda b, h: cuscan.linear_recurrence(0.5, b, carry=(product, h), return_carry=True)[1], b, h)
    check(lambda x: cuscan.total(x, "logaddexp")[0], b)
    check(lambda x: cuscan.total(x, "logaddexp", carry=(a[:, 0], b[:, 0].abs()))[1], b)
    check(lambda x: cuscan.total(x, "max", return_indices=True)[0], b)
    x = torch.complex(a, b)
    check(lambda x, before: cuscan.cumprod(x, carry=before, return_carry=True), x, torch.complex(product, h))


@pytest.mark.parametrize("length", [0, 1])
def test_short_axes(length: int) -> None:
    for op in OPS:
        values, fields = values_of(op, 7, (2, length)), carry_of(op, 2)
        many = len(values)
        check(lambda *inputs, op=op, many=many: run(op, inputs[:many], inputs[many:]), *values, *fields)


def joined(op: Any, values: tuple[Any, ...], cuts: list[int], **call: Any) -> Any:
    """The scan of values in chunks, each of which continues from the previous one's carry."""
    carry, parts = None, []
    for first, end in itertools.pairwise(cuts):
        here = tuple(value[:, first:end] for value in values)
        function = cuscan.linear_recurrence if op == "linear_recurrence" else functools.partial(cuscan.scan, op=op)
        part, carry = function(*here, carry=carry, return_carry=True, **call)
        parts.append(part)
    return torch.cat(parts, 1)


def gradients(function: Any, *inputs: Any) -> list[Any]:
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    return list(torch.autograd.grad(function(*leaves).square().sum(), leaves))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("op", OPS, ids=lambda op: getattr(op, "name", op))
def test_chunks_have_the_gradients_of_the_whole(op: Any, dtype: Any) -> None:
    values = tuple(x.to(dtype) for x in values_of(op, 8, (2, 9)))
    whole = gradients(lambda *values: joined(op, values, [0, 9]), *(x.double() for x in values))
    chunks = gradients(lambda *values: joined(op, values, [0, 2, 2, 6, 9]), *values)
    for got, expected in zip(chunks, whole, strict=True):
        assert got.dtype == dtype
        scale = expected.abs().amax(1, keepdim=True)
        assert ((got.double() - expected).abs() <= 12 * torch.finfo(dtype).eps * scale).all()


def test_what_enters_no_segment_has_no_gradient() -> None:
    x, carry = torch.ones(3, dtype=torch.float64), torch.ones((), dtype=torch.float64, requires_grad=True)
    nan = torch.tensor(float("nan"))
    for call, key, expected in (
        ({"reset": torch.tensor([True, False, False])}, None, 0),
        ({"reset": torch.tensor([False, False, True])}, None, 2),
        ({"offsets": torch.tensor([0, 0, 3])}, None, 0),
        ({"offsets": torch.tensor([0, 3, 3])}, None, 3),
        ({"offsets": torch.tensor([0, 3, 3]), "reverse": True}, None, 0),
        ({"keys": torch.tensor([1.0, 1, 2])}, torch.tensor(1.0), 2),
        ({"keys": torch.tensor([1.0, 1, 2])}, torch.tensor(2.0), 0),
        ({"keys": torch.full((3,), torch.nan)}, nan, 0),
    ):
        result = cuscan.cumsum(x, carry=carry if key is None else (carry, key), **call)
        assert torch.autograd.grad(result.sum(), carry)[0].item() == expected
    y = x.clone().requires_grad_()
    cuscan.total(y, keys=torch.full((3,), torch.nan))[0].backward()
    assert y.grad.tolist() == [0, 0, 1]


def test_only_what_is_wanted_is_computed_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuscan.autograd import torch as routes

    x, carry = torch.ones((2, 3), requires_grad=True), torch.ones(2, dtype=torch.float64, requires_grad=True)
    runs: list[Any] = []
    ran = routes.backends.run
    monkeypatch.setattr(routes.backends, "run", lambda *call: runs.append(call) or ran(*call))
    for scans, function in (
        (0, lambda: cuscan.total(x)),  # the gradient is the same for every element
        (1, lambda: cuscan.cumsum(x, carry=carry)),
        (1, lambda: cuscan.cumsum(x, return_carry=True)[0]),
        (1, lambda: sum(y.sum() for y in cuscan.cumsum(x, carry=carry, return_carry=True))),
        (1, lambda: cuscan.cumprod(x, carry=carry)),
        (1, lambda: cuscan.linear_recurrence(x, x, carry=(carry.detach(), carry), return_carry=True)[1][1]),
    ):
        kept: list[Any] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, kept=kept: kept.append(t) or t, lambda t: t):
            result = function()
        assert len([tensor for tensor in kept if tensor.shape == x.shape]) <= 2
        runs.clear()
        result.sum().backward()
        assert len(runs) == scans


def test_what_has_no_derivative_goes_without() -> None:
    x = torch.ones(3, requires_grad=True)
    keys = torch.tensor([1.0, 1, 2])
    total, key = cuscan.total(x, keys=keys)
    assert total.requires_grad and not key.requires_grad
    value, position, count = cuscan.total(x, "max", return_indices=True)
    assert value.requires_grad and not position.requires_grad and not count.requires_grad
    assert not cuscan.total(torch.ones(3, dtype=torch.int32)).requires_grad
    assert not cuscan.total(x, dtype=torch.int32).requires_grad


# ---- transforms, compilation -----------------------------------------------------------------------------------------


def squares(op: Any, *inputs: Any, many: int = 1, **call: Any) -> Any:
    return sum(y.square().sum() for y in run(op, inputs[:many], inputs[many:], **call))


@pytest.mark.parametrize("op", OPS, ids=lambda op: getattr(op, "name", op))
def test_transforms(op: Any) -> None:
    values, fields = values_of(op, 9), carry_of(op, 3)
    loss = functools.partial(squares, op, many=len(values))
    inputs = (*values, *fields)
    places = tuple(range(len(inputs)))
    expected = gradients_of(loss, *inputs)
    torch.testing.assert_close(list(grad(loss, places)(*inputs)), expected)
    tangents = tuple(torch.rand_like(x) for x in inputs)
    torch.testing.assert_close(
        jvp(loss, inputs, tangents)[1], sum((g * t).sum() for g, t in zip(expected, tangents, strict=True))
    )
    rows = vmap(grad(loss, places))(*inputs)
    torch.testing.assert_close(list(rows), expected)


def gradients_of(loss: Any, *inputs: Any) -> list[Any]:
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    return list(torch.autograd.grad(loss(*leaves), leaves))


def test_vmap_over_carries_and_what_stands_beside() -> None:
    x, carry = numbers(3, 2, 4), numbers(3, 2, seed=1)
    offsets = torch.tensor([[0, 2, 4], [0, 0, 4], [0, 4, 4]])
    keys, before = torch.randint(0, 2, (3, 4)), torch.randint(0, 2, (3, 2))

    def of(**call: Any) -> Any:
        result, behind = cuscan.cumsum(call.pop("x"), return_carry=True, **call)
        return torch.cat((result, (behind[0] if isinstance(behind, tuple) else behind)[..., None]), -1)

    for given in (
        {"x": x, "carry": carry},
        {"x": x, "carry": carry, "offsets": offsets},
        {"x": x, "carry": carry, "offsets": offsets, "reverse": True},
        {"x": x, "carry": (carry, before), "keys": keys},
        {"x": x, "carry": carry, "reset": keys > 0},
        {"x": x[0], "carry": carry},
        {"x": x, "carry": carry[0]},
        {"x": x, "carry": (carry[0], before[0]), "keys": keys},
    ):
        names = [name for name in given if name != "reverse"]
        batched = {name: 0 if _leading(given[name]) == 3 else None for name in names}

        def one(*arrays: Any, names: Any = names, given: Any = given) -> Any:
            return of(**{**given, **dict(zip(names, arrays, strict=True))})

        got = vmap(one, tuple(batched.values()))(*(given[name] for name in names))
        for i in range(3):
            row = [_row(given[name], i) if batched[name] == 0 else given[name] for name in names]
            torch.testing.assert_close(got[i], one(*row))


def _leading(given: Any) -> int:
    return len(given[0] if isinstance(given, tuple) else given)


def _row(given: Any, i: int) -> Any:
    return tuple(part[i] for part in given) if isinstance(given, tuple) else given[i]


def two_chunks(x: Any) -> Any:
    first, carry = cuscan.linear_recurrence(x.sigmoid(), x, return_carry=True)
    second, behind = cuscan.linear_recurrence(x.sigmoid(), x, carry=carry, return_carry=True)
    return first.square().sum() + second.square().sum() + behind[0].sum()


def every_carry(x: Any) -> Any:
    keys = x[0].long()
    first, carry = cuscan.cumsum(x, keys=keys, return_carry=True)
    second = cuscan.cumsum(x, keys=keys, carry=carry)
    top, total = cuscan.total(x, "logaddexp")
    (value, *_), greatest = cuscan.total(x, "max", return_indices=True), cuscan.total(x, "max")
    return (first + second).square().sum() + ((top + total.log()) * value * greatest).sum()


@pytest.mark.parametrize("function", [two_chunks, pytest.param(every_carry, marks=pytest.mark.full)])
def test_carries_are_compiled(function: Any) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for n in (5, 7):
        x = numbers(2, n)
        torch.testing.assert_close(gradients_of(compiled, x), gradients_of(function, x))


def test_fake_carries_are_like_real_ones() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    x = numbers(3, 4, 5).transpose(0, 2)
    with FakeTensorMode() as mode:
        fakes = cuscan.total(mode.from_tensor(x), "max", axis=1, return_indices=True)
    for fake, real in zip(fakes, cuscan.total(x, "max", axis=1, return_indices=True), strict=True):
        assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)
