"""Similar calls of torch tensors on a GPU, with and without gradients; launches run in the simulator."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuscan

pytest.importorskip("cupy", reason="CuPy is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")

from fake_gpu import fake_gpu_of_torch  # noqa: E402

from cuscan import autograd, backends  # noqa: E402


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    yield from fake_gpu_of_torch(monkeypatch)


def numbers(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


ROWS, LENGTH = 3, 50
CALLS: dict[str, Callable[..., Any]] = {
    "add": cuscan.cumsum,
    "add-axis": lambda x: cuscan.cumsum(x, axis=0, exclusive=True, reverse=True, initial=2.0),
    "add-masked": lambda x: cuscan.cumsum(x, mask=x > 0),
    "add-offsets": lambda x: cuscan.cumsum(x, offsets=torch.tensor([0, 20, 20, LENGTH], device=x.device)),
    "mul": lambda x: cuscan.cumprod(x, initial=0.5),
    "max": lambda x: cuscan.cummax(x, return_indices=True)[0],
    "logaddexp": cuscan.logcumsumexp,
    "recurrence": lambda x: cuscan.linear_recurrence(x.sigmoid(), x, reset=x > 0),
    "decay": lambda x: cuscan.linear_recurrence(0.5, x, initial=x[:, 0], return_last=True)[1],
    "carry": lambda x: sum(y.sum() for y in cuscan.cumsum(x, return_carry=True)),
}


def gradient(function: Callable[..., Any], x: Any) -> tuple[Any, Any]:
    """The first and the second derivative of a sum of squares."""
    x = x.detach().requires_grad_()
    (first,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return first.detach(), second


def inputs() -> list[Any]:
    """Similar arrays, and one with other strides."""
    return [numbers(ROWS, LENGTH, seed=seed) for seed in range(3)] + [numbers(LENGTH, ROWS).t()]


FULL = {"add-axis", "add-masked", "logaddexp", "mul", "max", "decay", "recurrence", "carry"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.full] if n in FULL else []) for n in CALLS])
def test_like_calls_have_the_gradients_of_the_first(name: str, request: pytest.FixtureRequest) -> None:
    expected = [gradient(CALLS[name], x) for x in inputs()]
    gpu = request.getfixturevalue("gpu")
    for _ in range(2):
        with pytest.MonkeyPatch.context() as patch:
            for way in ("item", "tolist", "cpu", "numpy", "__bool__"):  # each of these waits for the GPU
                patch.setattr(torch.Tensor, way, None)
            got = [gradient(CALLS[name], x) for x in inputs()]
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert gpu.launches


@pytest.mark.gpu
@pytest.mark.parametrize("name", CALLS)
def test_the_gradients_of_a_gpu(name: str) -> None:
    for _ in range(2):
        for x in inputs():
            got = [each.cpu() for each in gradient(CALLS[name], x.cuda())]
            torch.testing.assert_close(got, list(gradient(CALLS[name], x)), rtol=1e-4, atol=1e-4)


def test_like_calls_are_told_apart_by_what_is_recorded(gpu: Any) -> None:
    x, a = numbers(LENGTH), numbers(LENGTH, seed=1)
    for _ in range(3):
        for one in (False, True):
            for other in (False, True):
                a.requires_grad_(one), x.requires_grad_(other)
                y = cuscan.linear_recurrence(a, x)
                assert y.requires_grad == (one or other)
                if y.requires_grad:
                    a.grad = x.grad = None
                    y.sum().backward()
                    assert [each.grad is not None for each in (a, x)] == [one, other]
        with torch.no_grad():
            assert not cuscan.cumsum(x.requires_grad_()).requires_grad
        assert cuscan.cumsum(x).requires_grad
        with pytest.raises(cuscan.ScanTypeError, match="out= has no derivative"):
            cuscan.cumsum(x, out=torch.empty(LENGTH))


def test_a_scan_of_nothing_assigns_nothing(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number assigned to a tensor without dimensions comes from the host, which waits."""
    monkeypatch.setattr(torch.Tensor, "__setitem__", None)
    for dtype, least in ((torch.uint64, 2**64 - 1), (torch.int16, 2**15 - 1), (torch.float32, float("inf"))):
        results, carry = cuscan.scan(torch.empty(0, dtype=dtype), "min", return_carry=True)
        assert (tuple(results.shape), carry.item()) == ((0,), least)
    _, last = cuscan.linear_recurrence(0.5, torch.empty(0), initial=2.5, return_last=True)
    assert last.item() == 2.5
    before = torch.full((), 3.5)
    _, last = cuscan.linear_recurrence(0.5, torch.empty(0), initial=before, return_last=True)
    assert last.item() == 3.5


def test_numbers_may_differ_from_call_to_call(gpu: Any) -> None:
    x = torch.ones(3, requires_grad=True)
    for _ in range(3):
        for decay in (0.5, 0.25, -0.0):
            (found,) = torch.autograd.grad(cuscan.linear_recurrence(decay, x).sum(), x)
            assert found.tolist() == [1 + decay + decay**2, 1 + decay, 1]
        for start in (2.0, torch.tensor(3.0), np.array(0.0)):
            initial = float(start)
            (found,) = torch.autograd.grad(cuscan.cumprod(x, initial=start).sum(), x)
            assert found.tolist() == [3 * initial, 2 * initial, initial]
            assert cuscan.cumsum(x, initial=start).tolist() == [initial + 1, initial + 2, initial + 3]
        with pytest.raises(cuscan.ScanTypeError, match="initial requires grad"):
            cuscan.cumprod(x, initial=torch.tensor(2.0, requires_grad=True))


def test_batches_of_gradients_and_threads(gpu: Any) -> None:
    x = numbers(4, 6).requires_grad_()
    for _ in range(3):
        y = cuscan.cumprod(x, axis=0)
        many = numbers(3, 4, 6, seed=1)
        (batched,) = torch.autograd.grad(y, x, many, is_grads_batched=True, retain_graph=True)
        one_by_one = [torch.autograd.grad(y, x, each, retain_graph=True)[0] for each in many]
        torch.testing.assert_close(batched, torch.stack(one_by_one))
        with ThreadPoolExecutor(3) as threads:
            got = list(threads.map(lambda each: torch.autograd.grad(cuscan.cumprod(x, axis=0), x, each)[0], many))
        torch.testing.assert_close(got, one_by_one, rtol=0, atol=0)


def calls_of(function: Callable[[], Any]) -> int:
    """The number of the package's functions that a call runs."""
    package, count = str(Path(cuscan.__file__).parent), 0

    def watch(frame: Any, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(package)

    sys.setprofile(watch)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


OTHERS = 18  # functions that forward and backward may run in addition to those of as many scans without gradients


@pytest.mark.parametrize("name, scans", [("add", 1), ("add-masked", 1), ("mul", 2), ("recurrence", 2), ("decay", 1)])
def test_a_like_call_decides_nothing(name: str, scans: int, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither forward nor backward adopts or checks anything: each scan is a key, a lookup and a launch."""
    x, weights = torch.ones(LENGTH, requires_grad=True), torch.ones(LENGTH)
    mask, a = torch.ones(LENGTH, dtype=torch.bool), torch.ones(LENGTH)
    function: Callable[[Any], Any] = {
        "add": cuscan.cumsum,
        "add-masked": lambda x: cuscan.cumsum(x, mask=mask),
        "mul": cuscan.cumprod,
        "recurrence": lambda x: cuscan.linear_recurrence(x, a),
        "decay": lambda x: cuscan.linear_recurrence(0.5, x),
    }[name]
    for _ in range(3):
        torch.autograd.grad(function(x), x, weights)
        function(x.detach())
    monkeypatch.setattr(autograd, "run", None)
    monkeypatch.setattr(backends, "run", None)
    plain = calls_of(lambda: function(x.detach()))
    got = calls_of(lambda: torch.autograd.grad(function(x), x, weights))
    assert got <= (1 + scans) * plain + OTHERS
