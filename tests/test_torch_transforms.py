"""Scans under the transforms and modes of torch: torch.func, checkpoints, hooks, autocast, subclasses, fork."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import cuscan
from cuscan import ScanTypeError, ScanValueError

torch = pytest.importorskip("torch", reason="torch is not installed")

from large_arrays import results_are_read  # noqa: E402, F401  pytest applies it to this module
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

OPS = ["add", "mul", "max", "logaddexp"]


def numbers(*shape: int, seed: int = 0, dtype: Any = torch.float64) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def recorded(function: Any, *inputs: Any) -> list[Any]:
    """The gradients that autograd computes for the sum of the squares of the results."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    results = function(*leaves)
    results = results if isinstance(results, tuple) else (results,)
    return list(torch.autograd.grad(sum(y.square().sum() for y in results), leaves))


# ---- torch.func ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS)
def test_grad_vjp_jvp(op: str) -> None:
    x, other = numbers(3, 5), numbers(3, 5, seed=1)

    def function(x: Any) -> Any:
        return cuscan.scan(x, op, exclusive=True, initial=0.5)

    (expected,) = recorded(function, x)
    torch.testing.assert_close(grad(lambda x: function(x).square().sum())(x), expected)
    y, pull = vjp(function, x)
    torch.testing.assert_close(pull(2 * y)[0], expected)
    tangent = jvp(function, (x,), (other,))[1]
    torch.testing.assert_close((tangent * other).sum(), (pull(other)[0] * other).sum())


@pytest.mark.parametrize("op", OPS)
def test_hessians(op: str) -> None:
    def loss(x: Any) -> Any:
        return cuscan.scan(x, op, reverse=True).square().sum()

    x = numbers(4)
    expected = torch.autograd.functional.hessian(loss, x)
    for way in (hessian, lambda f: jacrev(jacfwd(f)), lambda f: jacrev(jacrev(f))):
        torch.testing.assert_close(way(loss)(x), expected)
    torch.testing.assert_close(torch.autograd.functional.hessian(loss, x, vectorize=True), expected)
    with pytest.raises(ScanTypeError, match="forward derivatives of forward derivatives"):
        jacfwd(jacfwd(loss))(x)  # torch drops the outer derivatives in silence


def recorded_of(loss: Any) -> Any:
    return lambda x: torch.autograd.grad(loss(x), x, create_graph=True)[0]


def test_recurrences_under_grad() -> None:
    inputs = numbers(3, 1), numbers(3, 5, seed=1), numbers(3, seed=2)

    def function(a: Any, b: Any, initial: Any) -> Any:
        return cuscan.linear_recurrence(a, b, initial=initial, reverse=True, return_last=True)

    got = grad(lambda *inputs: sum(y.square().sum() for y in function(*inputs)), (0, 1, 2))(*inputs)
    torch.testing.assert_close(list(got), recorded(function, *inputs))


def one_by_one(function: Any, *inputs: Any) -> Any:
    return torch.stack([function(*row) for row in zip(*inputs, strict=True)])


def test_vmap_is_a_scan_with_one_more_axis() -> None:
    x = numbers(3, 4, 5)
    for op in OPS:
        assert torch.equal(vmap(lambda x, op=op: cuscan.scan(x, op), 1, 1)(x), cuscan.scan(x, op))
    assert torch.equal(vmap(vmap(cuscan.cumsum))(x), cuscan.cumsum(x))
    assert torch.equal(vmap(lambda x: cuscan.cumsum(x, axis=0))(x), cuscan.cumsum(x, axis=1))
    values, index = vmap(lambda x: cuscan.cummax(x, return_indices=True))(x)
    assert torch.equal(index, cuscan.cummax(x, return_indices=True)[1]) and torch.equal(values, cuscan.cummax(x))
    got = vmap(grad(lambda x: cuscan.cumprod(x).square().sum()))(x)
    torch.testing.assert_close([got], recorded(cuscan.cumprod, x))


def test_vmap_over_what_stands_beside() -> None:
    x, row = numbers(3, 4, 5), numbers(4, 5, seed=1)
    offsets = torch.tensor([[0, 2, 5], [0, 1, 5], [0, 5, 5]])
    keys, mask = torch.randint(0, 2, (3, 5)), numbers(3, 5, seed=2) > 0

    def segmented(name: str, axis: int = -1) -> Any:
        return lambda x, beside: cuscan.cumsum(x, axis=axis, **{name: beside})

    for function, *inputs in (
        (segmented("offsets"), x, offsets),
        (segmented("keys"), x, keys),
        (segmented("keys", 0), x, keys[:, :4]),
        (segmented("mask"), x, mask),
        (segmented("mask", 0), x, mask[:, :4]),
        (segmented("reset"), x, mask),
        (lambda x: cuscan.cumsum(x, offsets=offsets[0]), x),
        (lambda mask: cuscan.cumsum(row, mask=mask), mask),
        (lambda a, initial: cuscan.linear_recurrence(a, row, initial=initial), x[..., :1], x[..., 0]),
        (lambda a: cuscan.linear_recurrence(a, row, axis=0), x[:, :, 0, None]),
    ):
        torch.testing.assert_close(vmap(function)(*inputs), one_by_one(function, *inputs))


def test_flags_that_fit_two_axes_are_an_error_under_vmap_too() -> None:
    """As without vmap: flags cannot lie along the axis of the batch."""
    x, flags = numbers(4, 4), numbers(3, 4) > 0
    calls = {
        "mask of shape (4,) fits the scanned axis and the last one of x": lambda m: cuscan.cumsum(x, 0, mask=m),
        "reset of shape (4,) fits the scanned axis and the last one of b": lambda m: cuscan.linear_recurrence(
            0.5, x, axis=0, reset=m
        ),
    }
    for text, call in calls.items():
        shown = []
        for function, given in ((call, flags[0]), (vmap(call), flags)):
            with pytest.raises(ScanValueError) as caught:
                function(given)
            shown.append(str(caught.value))
        assert shown[0] == shown[1] and shown[0].startswith(text) and ".reshape(-1, 1) for axis 0" in shown[0]


def test_operators_of_the_user_under_transforms() -> None:
    times = cuscan.Operator(
        "times", "earlier * later", 1, numpy=np.multiply, vjp=lambda earlier, later, g: (g * later, g * earlier)
    )
    x = numbers(3, 4)
    got = vmap(grad(lambda x: cuscan.scan(x, times).square().sum()))(x)
    torch.testing.assert_close([got], recorded(cuscan.cumprod, x))


# ---- autograd's own means --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant: bool) -> None:
    x = numbers(3, 5).requires_grad_()
    checkpoint(cuscan.cumprod, x, use_reentrant=reentrant).square().sum().backward()
    torch.testing.assert_close([x.grad], recorded(cuscan.cumprod, x))


def test_selective_checkpoints_see_the_operator() -> None:
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    seen = []

    def policy(_: Any, op: Any, *__: Any, **___: Any) -> Any:
        seen.append(op)
        return CheckpointPolicy.MUST_SAVE

    def contexts() -> Any:
        return create_selective_checkpoint_contexts(policy)

    x = numbers(3, 5)
    got = recorded(lambda x: checkpoint(cuscan.cumprod, x, use_reentrant=False, context_fn=contexts), x)
    torch.testing.assert_close(got, recorded(cuscan.cumprod, x))
    assert torch.ops.cuscan.scan.default in seen


def test_saved_tensors_hooks_may_move_what_is_saved() -> None:
    x = numbers(3, 5)
    with torch.autograd.graph.save_on_cpu():
        got = recorded(cuscan.logcumsumexp, x)
    torch.testing.assert_close(got, recorded(cuscan.logcumsumexp, x))


def test_what_is_written_after_it_was_saved_is_noticed() -> None:
    x = numbers(4).requires_grad_()
    between = x * 1
    y = cuscan.cumprod(between)
    between.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_results_may_be_written_in_place() -> None:
    """Those that no derivative reads."""
    x = numbers(4)
    torch.testing.assert_close(
        recorded(lambda x: cuscan.cummax(x).mul_(2), x), recorded(lambda x: 2 * cuscan.cummax(x), x)
    )


def test_parameters_are_trained() -> None:
    layer = torch.nn.Module()
    layer.decay = torch.nn.Parameter(torch.tensor(0.2))
    x = torch.ones(4, 50)
    target = cuscan.linear_recurrence(0.7, x)
    optimizer = torch.optim.Adam(layer.parameters(), 0.05)
    for _ in range(60):
        optimizer.zero_grad()
        (cuscan.linear_recurrence(layer.decay, x) - target).square().mean().backward()
        optimizer.step()
    assert abs(layer.decay.item() - 0.7) < 0.02


def test_deterministic_mode_gives_the_same_gradients() -> None:
    x = numbers(3, 50)
    expected = [recorded(lambda x, op=op: cuscan.scan(x, op), x)[0] for op in OPS]
    torch.use_deterministic_algorithms(True)
    try:
        got = [recorded(lambda x, op=op: cuscan.scan(x, op), x)[0] for op in OPS]
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(one, other) for one, other in zip(got, expected, strict=True))


def test_autocast_keeps_the_dtype() -> None:
    x = torch.ones(3, dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert cuscan.cumprod(x).dtype == torch.bfloat16
        assert cuscan.cumprod(x.float()).dtype == torch.float32
        cuscan.cumprod(x).sum().backward()
    assert x.grad.dtype == torch.bfloat16 and x.grad.tolist() == [3, 2, 1]


def test_inference_mode() -> None:
    x = numbers(3).requires_grad_()
    with torch.inference_mode():
        y = cuscan.cumsum(x)
        assert y.is_inference() and torch.equal(vmap(cuscan.cumsum)(y[None])[0], cuscan.cumsum(y))
    assert not y.requires_grad


# ---- other tensors ---------------------------------------------------------------------------------------------------


class Published(torch.Tensor):
    """A subclass without methods of its own."""


def test_subclasses_are_kept() -> None:
    x = numbers(4).as_subclass(Published)
    assert type(cuscan.cumsum(x)) is Published and torch.equal(cuscan.cumsum(x), torch.cumsum(x, 0))
    assert [type(y) for y in cuscan.cummax(x, return_indices=True)] == [Published, Published]
    x = numbers(4).as_subclass(Published).requires_grad_()
    cuscan.cumprod(x).sum().backward()
    torch.testing.assert_close(x.grad, recorded_of(lambda x: cuscan.cumprod(x).sum())(x.as_subclass(torch.Tensor)))


def test_fake_tensors_have_the_shapes_and_strides_of_results() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    x = numbers(3, 4, 5).transpose(0, 2)
    calls = [
        lambda x: cuscan.cumsum(x, dtype=torch.float32),
        lambda x: cuscan.cummax(x, axis=1, return_indices=True, include_initial=True),
        lambda x: cuscan.linear_recurrence(0.5, x, return_last=True, axis=0),
    ]
    for call in calls:
        with FakeTensorMode() as mode:
            fakes = call(mode.from_tensor(x))
        for fake, real in zip(fakes, call(x), strict=True):
            assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)
    with FakeTensorMode() as mode, pytest.raises(ScanTypeError, match=r"^mask must have dtype bool"):
        cuscan.cumsum(mode.from_tensor(x), mask=mode.from_tensor(x))


def test_a_wrapper_subclass_goes_through_its_own_dispatch() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    got = cuscan.cumsum(TwoTensor(torch.ones(3), torch.zeros(3)))
    assert type(got) is TwoTensor and got.a.tolist() == [1, 2, 3] and got.b.tolist() == [0, 0, 0]


def test_out_under_vmap() -> None:
    x, out = numbers(3, 4), torch.empty(3, 4, dtype=torch.float64)
    vmap(lambda x, out: cuscan.cumsum(x, out=out))(x, out)
    assert torch.equal(out, cuscan.cumsum(x))
    with pytest.raises(cuscan.ScanValueError, match=r"^out has shape \(4,\) and dtype torch.float64; the result has"):
        vmap(lambda x, out: cuscan.cumsum(x, out=out, include_initial=True))(x, out)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore")
def test_a_fork_after_import_records_too() -> None:
    cuscan.cumprod(numbers(4).requires_grad_()).sum()
    child = os.fork()
    if child == 0:
        x = torch.ones(3, requires_grad=True)
        os._exit(0 if cuscan.cumprod(x).requires_grad and cuscan.cumsum(x).tolist() == [1, 2, 3] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
