"""Similar calls of torch tensors, found by guards, and replayed backwards; launches run in the simulator."""

from __future__ import annotations

import gc
import operator
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cuscan

pytest.importorskip("cupy", reason="CuPy is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")

from fake_gpu import fake_gpu_of_torch  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from cuscan.autograd import tape, torch_recording  # noqa: E402
from cuscan.autograd.torch_lines import Move, write  # noqa: E402
from cuscan.backends import repeats  # noqa: E402
from cuscan.interop import torch_internals  # noqa: E402
from cuscan.interop.torch import LIBRARY  # noqa: E402
from cuscan.interop.view import Device  # noqa: E402

LENGTH = 40
KEEPS = 3  # similar calls, or backwards, until all is recorded


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    yield from fake_gpu_of_torch(monkeypatch)


def numbers(*shape: int, seed: int = 0, dtype: Any = None) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


# ---- similar calls ---------------------------------------------------------------------------------------------------


def test_guards_are_what_is_expected_of_them() -> None:
    """Otherwise similar calls are found more slowly, without an error."""
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            assert torch_internals.find_guards.__wrapped__() is not None


@pytest.mark.gpu
def test_results_on_a_gpu_are_allocated_the_short_way() -> None:
    assert torch_internals.allocates(torch.device("cuda", torch.cuda.current_device()))


def test_another_allocator_is_not_taken_for_torch_s(monkeypatch: pytest.MonkeyPatch) -> None:
    allocates, here = torch_internals.allocates.__wrapped__, torch.device("cpu")
    assert not allocates(here)  # not the function of a GPU
    monkeypatch.setattr(torch_internals, "allocate", lambda *spec: torch.empty_strided(*spec[:2], dtype=spec[2]))
    assert allocates(here)
    monkeypatch.setattr(torch_internals, "allocate", lambda *spec: torch.empty_strided(*spec[:2]))
    assert not allocates(here)


def test_a_like_call_asks_for_no_facts(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = numbers(3, LENGTH), torch.empty(3, LENGTH)
    shifted = numbers(LENGTH + 1)[1:]  # not aligned
    calls: list[Callable[[], Any]] = [
        lambda: cuscan.cumsum(x),
        lambda: cuscan.cumsum(x, out=y),
        lambda: cuscan.cumsum(shifted),
        lambda: cuscan.cumsum(x, mask=x > 0, initial=2.0),
        lambda: cuscan.linear_recurrence(x, y.clone(), return_last=True)[1],
        lambda: cuscan.cumsum(x.clone().requires_grad_()).detach(),
    ]
    expected = [[call().clone() for call in calls] for _ in range(KEEPS)]
    monkeypatch.setattr(LIBRARY, "look", None)
    before = y._version
    torch.testing.assert_close([call() for call in calls], expected[-1], rtol=0, atol=0)
    assert y._version == before + 1


def test_what_is_not_alike_is_told_apart(gpu: Any) -> None:
    """All of these have the shape of the stored call, and most of them its dtype."""
    wide, complexes = numbers(2 * LENGTH + 1), numbers(LENGTH, seed=1) + 1j * numbers(LENGTH)
    others = [
        numbers(LENGTH),
        wide[::2][:LENGTH],
        wide[1 : LENGTH + 1],
        numbers(LENGTH, dtype=torch.float64),
        torch.nn.Parameter(numbers(LENGTH)),
        numbers(LENGTH)._neg_view(),
        complexes,
        complexes.conj(),
    ]
    for _ in range(KEEPS):
        for x in others:
            for other in (others[0], x):
                got, plain = cuscan.cumsum(other), other.detach().resolve_conj().resolve_neg().clone()
                torch.testing.assert_close(got.detach(), plain.cumsum(0))
                assert got.requires_grad == other.requires_grad


def test_what_tells_arrays_apart_knows_alignments(gpu: Any) -> None:
    memory, y = numbers(LENGTH + 4), numbers(LENGTH)
    aligned, shifted, far = memory[:LENGTH], memory[1 : LENGTH + 1], memory[4 : LENGTH + 4]
    of_aligned, of_shifted = (LIBRARY.liken((x, y)) for x in (aligned, shifted))
    assert of_aligned is not None and of_shifted is not None and LIBRARY.liken((y, y)) is None
    assert of_aligned((far, y)) == [far.data_ptr(), y.data_ptr()] and of_aligned((shifted, y)) is None
    assert of_shifted((shifted, y)) == [shifted.data_ptr(), y.data_ptr()]
    assert of_shifted((far, y)) is of_shifted((y, shifted)) is None


class Seen(TorchDispatchMode):  # type: ignore[misc]
    """A mode that lists the operations that run under it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def test_modes_see_like_calls(gpu: Any) -> None:
    x = numbers(LENGTH).requires_grad_()
    for _ in range(KEEPS):
        assert cuscan.cumsum(x).requires_grad
        with torch.no_grad():
            assert not cuscan.cumsum(x).requires_grad
        with torch.inference_mode():
            assert cuscan.cumsum(x).is_inference()
        with Seen() as seen:
            cuscan.cumsum(x)
        assert "cuscan.scan.default" in seen.names
        grown = torch.func.vmap(lambda y: cuscan.cumsum(x) + y)(torch.ones(2))
        torch.testing.assert_close(grown, (x.cumsum(0) + 1).expand(2, -1))
        _, tangent = torch.func.jvp(cuscan.cumsum, (x.detach(),), (torch.ones(LENGTH),))
        torch.testing.assert_close(tangent, torch.arange(1.0, LENGTH + 1))


def test_like_calls_whose_arrays_overlap_are_refused(gpu: Any) -> None:
    memory = torch.zeros(4 * LENGTH)
    x = memory[:LENGTH]
    for _ in range(KEEPS):
        cuscan.cumsum(x, out=memory[LENGTH : 2 * LENGTH])
        assert cuscan.cumsum(x, out=x) is x
        for first in (4, LENGTH - 4):
            with pytest.raises(cuscan.ScanValueError, match="out overlaps x in part"):
                cuscan.cumsum(x, out=memory[first : first + LENGTH])
        with pytest.raises(cuscan.ScanTypeError, match="out must be one array"):
            cuscan.cumsum(x, out=(memory[LENGTH : 2 * LENGTH], memory[2 * LENGTH : 3 * LENGTH]))


def test_arguments_that_cannot_be_hashed(gpu: Any) -> None:
    for _ in range(KEEPS):
        with pytest.raises(cuscan.ScanValueError, match="op must be"):
            cuscan.scan(numbers(LENGTH), op=[])


# ---- backwards -------------------------------------------------------------------------------------------------------

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": lambda x, a: cuscan.cumsum(x),
    "sum of columns": lambda x, a: cuscan.cumsum(x, axis=0, exclusive=True, reverse=True),
    "product": lambda x, a: cuscan.cumprod(x),
    "product with the first": lambda x, a: cuscan.cumprod(x, initial=0.5, include_initial=True),
    "masked product": lambda x, a: cuscan.cumprod(x, mask=a > 0),
    "greatest": lambda x, a: cuscan.cummax(x),
    "logarithm": lambda x, a: cuscan.logcumsumexp(x),
    "recurrence": lambda x, a: cuscan.linear_recurrence(a, x),
    "one decay a row": lambda x, a: cuscan.linear_recurrence(a[:, :1], x, initial=x[:, 0]),
    "decay of a number": lambda x, a: cuscan.linear_recurrence(0.5, x, reset=a > 1),
    "segments": lambda x, a: cuscan.cumprod(x, offsets=torch.tensor([0, 7, 7, LENGTH])),
    "total": lambda x, a: cuscan.total(x, "mul"),
}
WITHOUT_LAUNCH = {"total"}


def gradients(name: str, seed: int, turned: bool = False) -> list[Any]:
    """Gradients of a weighted sum. `turned`: the weights have other strides."""
    x, a = (numbers(3, LENGTH, seed=2 * seed + i).requires_grad_() for i in range(2))
    y = FUNCTIONS[name](x, a.sigmoid())
    weights = numbers(*y.shape[::-1], seed=seed).permute(*range(y.ndim)[::-1])
    y.backward(weights if turned else weights.contiguous())
    return [x.grad, a.grad]


ALWAYS = ("sum", "product", "segments", "total")


@pytest.mark.parametrize(
    "name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.full) for name in FUNCTIONS]
)
def test_replays_have_the_bits_of_the_first_backward(name: str, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [(seed, turned) for seed in range(2) for turned in (False, True)]
    with monkeypatch.context() as patch:
        patch.setattr(torch_recording, "is_followed", lambda: True)  # nothing is replayed
        expected = [gradients(name, *case) for case in cases]
        before = len(gpu.launches)
        gradients(name, 0)
        launches = len(gpu.launches) - before
    for _ in range(KEEPS):
        for case in cases:
            gradients(name, *case)
    monkeypatch.setattr(tape.Tape, "run", None)
    before = len(gpu.launches)
    got = [gradients(name, *case) for case in cases]
    torch.testing.assert_close(got, expected, rtol=0, atol=0)
    assert len(gpu.launches) - before == launches * len(cases)


def test_a_like_backward_is_found_by_its_tensors_alone(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("sum", "product", "recurrence")
    for _ in range(KEEPS):
        expected = [gradients(name, 0) for name in names]
    monkeypatch.setattr(torch_recording.Recording, "pull_by_tape", None)
    torch.testing.assert_close([gradients(name, 0) for name in names], expected, rtol=0, atol=0)


@pytest.mark.parametrize("initial", [None, 0.0, -0.0, 2.0])
def test_numbers_that_a_backward_reads_are_told_apart(initial: float | None, gpu: Any) -> None:
    """Calls that differ only in these numbers share a recording."""
    x = torch.tensor([0.0, 1.0, 2.0, 3.0], requires_grad=True)

    def gradient(initial: float | None) -> Any:
        y = cuscan.cumprod(x, initial=initial)
        return torch.autograd.grad(y, x, torch.ones(4))[0]

    expected = torch.tensor([10.0, 0, 0, 0]) * (1 if initial is None else initial)
    for _ in range(KEEPS):
        for other in (None, 0.0, -0.0, 2.0):
            gradient(other)
        got = gradient(initial)
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
        assert torch.equal(got.signbit(), expected.signbit())


def product(x: Any, weights: Any, **keywords: Any) -> Any:
    (found,) = torch.autograd.grad(cuscan.cumprod(x), x, weights, **keywords)
    return found


def test_other_strides_and_alignments_have_replays_of_their_own(gpu: Any) -> None:
    """Only the first few get one; the tape runs all others."""
    x, memory = numbers(LENGTH).requires_grad_(), numbers(8 * LENGTH, seed=1)
    weights = [memory[i : i + LENGTH * step : step] for step in (1, 2, 3) for i in (0, 1, 2)] + [
        memory[:1].expand(LENGTH)
    ]
    expected = [torch.autograd.grad(x.cumprod(0), x, each)[0] for each in weights]
    for _ in range(KEEPS):
        torch.testing.assert_close([product(x, each) for each in weights], expected, rtol=1e-4, atol=1e-5)


def test_a_backward_that_is_recorded_is_not_replayed(gpu: Any) -> None:
    x, weights = numbers(LENGTH, seed=3).double().requires_grad_(), torch.ones(LENGTH, dtype=torch.float64)
    for _ in range(KEEPS):
        product(x, weights)
        first = product(x, weights, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        (expected,) = torch.autograd.grad(torch.autograd.grad(x.cumprod(0), x, weights, create_graph=True)[0].sum(), x)
        torch.testing.assert_close(second, expected)


def test_a_replay_allocates_what_it_launches_and_no_more(gpu: Any) -> None:
    """The last product replaces a factor that is no longer read, but never an input."""
    x, weights = numbers(LENGTH).requires_grad_(), numbers(LENGTH, seed=1)
    kept = [x.detach().clone(), weights.clone()]
    for _ in range(KEEPS):
        product(x, weights)
    found = product(x, weights)
    memory = range(found.data_ptr(), found.data_ptr() + found.nbytes)
    assert any(each in memory for _, _, pointers in gpu.launches[-2:] for each in pointers)
    torch.testing.assert_close([x.detach(), weights], kept, rtol=0, atol=0)


def test_a_replay_lets_go_of_what_is_read(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[Any] = []
    most = 0
    make = LIBRARY.maker

    def maker(*spec: Any) -> Callable[[], Any]:
        def made() -> Any:
            nonlocal most
            result = make(*spec)()
            alive.append(weakref.ref(result))
            most = max(most, sum(each() is not None for each in alive))
            return result

        return made

    monkeypatch.setattr(LIBRARY, "maker", maker)
    x, weights = numbers(LENGTH).requires_grad_(), numbers(LENGTH, seed=1)
    for _ in range(KEEPS):
        torch.autograd.grad(cuscan.logcumsumexp(x), x, weights)
    gc.collect()
    y, most = cuscan.logcumsumexp(x), 0
    alive.clear()
    torch.autograd.grad(y, x, weights)
    assert (len(alive), most) == (3, 2)


@pytest.mark.parametrize("shown", [False, True])
def test_memory_whose_view_is_shown_is_not_written(shown: bool, gpu: Any) -> None:
    """The input doubled twice, and the first element of the input doubled once."""
    x, two, once, first, twice = 2, 1, 3, 4, 5  # slots; slot 0 has the place of the first element
    moves = [
        Move(operator.mul, (two, x), (once,)),
        Move(operator.getitem, (once, 0), (first,), view_of=once),
        Move(operator.mul, (two, once), (twice,), alike=(once,)),
    ]
    found = tape.Tape([slice(1), 2.0], [], [first if shown else None, twice])
    replay = write(found, 1, moves, lambda inputs: [0], Device("cuda", 0))
    view, doubled = replay((torch.ones(3),))  # type: ignore[misc]
    assert doubled.tolist() == [4, 4, 4] and (view is None or view.tolist() == [2])


def test_replays_run_on_the_device_of_their_tensors(gpu: Any) -> None:
    x, weights = numbers(LENGTH).requires_grad_(), numbers(LENGTH, seed=1)
    for _ in range(KEEPS):
        product(x, weights)
    y = cuscan.cumprod(x)
    gpu.current_device = 3
    torch.autograd.grad(y, x, weights)
    assert {device for device, _, _ in gpu.launches} == {0} and gpu.current_device == 3


def test_latest_launches_are_bounded(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuscan.kept.MOST", 3)
    for n in range(10, 16):
        for _ in range(KEEPS):
            cuscan.cumsum(numbers(n))
    assert len(repeats.latest) == 3
