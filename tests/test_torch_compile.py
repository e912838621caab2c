"""Scans under torch.compile and torch.export: whole graphs, training, symbolic sizes, the operator `cuscan::scan`."""

from __future__ import annotations

import io
import shutil
from typing import Any

import numpy as np
import pytest

import cuscan
from cuscan import interop
from cuscan.operators import find_key

torch = pytest.importorskip("torch", reason="torch is not installed")

from functorch.compile import make_boxed_func  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import cuscan.autograd.torch  # defines the operator  # noqa: E402

TIMES = cuscan.Operator(
    "times", "earlier * later", 1, numpy=np.multiply, vjp=lambda earlier, later, g: (g * later, g * earlier)
)
PAIR = cuscan.Operator(
    "pair",
    "return State{earlier.a + later.a, later.b};",
    (0, 0),
    state={"a": "float64", "b": "int64"},
    numpy=lambda earlier, later: (earlier["a"] + later["a"], later["b"]),
)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def numbers(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def compiled(function: Any, backend: Any = "aot_eager", **options: Any) -> Any:
    chosen = {} if "mode" in options else {"backend": backend}
    return torch.compile(function, fullgraph=True, **chosen, **options)


def everything(x: Any) -> list[Any]:
    """The results of all public functions, with every flag."""
    keys, offsets = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([0, 2, 5])
    return [
        cuscan.scan(x, "add", axis=0, exclusive=True, include_initial=True),
        cuscan.cumsum(x, reverse=True, dtype=torch.float32, initial=2.5, mask=x > 0),
        cuscan.cumprod(x, keys=keys),
        cuscan.nancumsum(x, offsets=offsets),
        cuscan.nancumprod(x, exclusive=True, initial=1),
        cuscan.logcumsumexp(x, reset=x > 0.5),
        *cuscan.cummax(x, return_indices=True, ties="last"),
        *cuscan.cummin(x, return_indices=True, reverse=True),
        cuscan.cummax(x),
        cuscan.cumulative_sum(x, axis=1, include_initial=True),
        cuscan.cumulative_prod(x[0]),
        *cuscan.linear_recurrence(x[:, :1].sigmoid(), x, initial=x[:, 0], return_last=True),
        cuscan.linear_recurrence(0.5, x, initial=1.0, reverse=True),
        cuscan.scan(x, TIMES),
    ]


def loss(x: Any) -> Any:
    return sum(y.square().sum() for y in everything(x) if y.is_floating_point())


def trained(function: Any, x: Any) -> Any:
    x = x.detach().clone().requires_grad_()
    function(x).backward()
    return x.grad


def test_everything_public_is_one_graph() -> None:
    x = numbers(3, 5)
    for got, expected in zip(compiled(everything)(x), everything(x), strict=True):
        assert torch.equal(got, expected) and got.stride() == expected.stride()


def step(x: Any) -> Any:
    """A loss with every operator, which creates no tensors on the host."""
    h = cuscan.linear_recurrence(x.sigmoid(), x, initial=x[:, 0], reset=x > 1)
    y = cuscan.cumprod(x.sigmoid(), reverse=True) + cuscan.logcumsumexp(x, exclusive=True, initial=0)
    return (h + y + cuscan.cummax(x, return_indices=True)[0] + cuscan.cumsum(x, mask=x > 0)).square().sum()


def test_training_is_one_graph_and_two_compilations_are_enough_for_all_sizes() -> None:
    counter = CompileCounterWithBackend("aot_eager")
    function = compiled(step, counter)
    for n in (5, 7, 20, 33):
        x = numbers(n, n + 2)
        torch.testing.assert_close(trained(function, x), trained(step, x))
    assert counter.frame_count <= 2


def test_the_first_call_of_all_may_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interop, "_libraries", {})
    x = numbers(3, 5)
    got = trained(compiled(lambda x: cuscan.cumprod(x).square().sum()), x)
    assert set(interop._libraries) <= {torch.Tensor, torch.nn.Parameter}
    torch.testing.assert_close(got, trained(lambda x: cuscan.cumprod(x).square().sum(), x))


def test_other_calls_are_one_graph_too() -> None:
    x, out = numbers(3, 5), torch.empty(3, 5, dtype=torch.float64)

    def calls(x: Any, out: Any) -> Any:
        cuscan.cumsum(x, out=out)
        return (
            torch.vmap(lambda x: cuscan.cumsum(x, axis=0))(x[None]),
            *cuscan.scan((x, x.long()), PAIR, initial=(0.5, 3)),
            cuscan.linear_recurrence(2, x, keys=torch.zeros(5, dtype=torch.int64)),
        )

    got = compiled(calls)(x, out)
    assert torch.equal(out, cuscan.cumsum(x))
    for one, other in zip(got, calls(x, torch.empty_like(out)), strict=True):
        assert torch.equal(one, other)


def test_mistakes_are_named_while_compiling() -> None:
    with pytest.raises(Exception, match="axis 7 is out of range for x of shape"):
        compiled(lambda x: cuscan.cumsum(x, axis=7))(numbers(3))
    with pytest.raises(Exception, match="has no derivative"):
        plain = cuscan.Operator("plain", "earlier * later", 1, numpy=np.multiply)
        trained(compiled(lambda x: cuscan.scan(x, plain).sum()), numbers(3))


def test_inference_mode_and_no_grad() -> None:
    x, function = numbers(3), compiled(cuscan.cumsum)
    for mode in (torch.inference_mode, torch.no_grad):
        with mode():
            assert torch.equal(function(x.requires_grad_()), torch.cumsum(x, 0))


class Layer(torch.nn.Module):
    """A model to export."""

    def __init__(self) -> None:
        super().__init__()
        self.decay = torch.nn.Parameter(torch.linspace(-1, 1, 8, dtype=torch.float64))

    def forward(self, x: Any) -> Any:
        gates = self.decay[:, None].sigmoid()
        return cuscan.linear_recurrence(gates, x, initial=x[..., 0], return_last=True), cuscan.cumsum(x, initial=2)


def test_export_with_a_dynamic_dimension() -> None:
    layer, length = Layer(), torch.export.Dim("length", min=2, max=1000)
    program = torch.export.export(layer, (numbers(8, 10),), dynamic_shapes={"x": {1: length}})
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    x = numbers(8, 77)
    for loaded in (program, torch.export.load(file)):
        torch.testing.assert_close(loaded.module()(x), layer(x), rtol=0, atol=0)


# ---- the operator ----------------------------------------------------------------------------------------------------


def arguments_of(function: Any, *inputs: Any) -> tuple[Any, ...]:
    """The arguments that a call passes to the operator."""
    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if op is torch.ops.cuscan.scan.default:
                seen.append(args)
            return op(*args, **(kwargs or {}))

    with Watch():
        function(*inputs)
    return tuple(seen[0])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: cuscan.linear_recurrence(x, x, initial=x[:, 0], return_last=True),
        pytest.param(cuscan.cumprod, marks=pytest.mark.full),
        pytest.param(lambda x: cuscan.scan(x, "logaddexp", exclusive=True, initial=1.5), marks=pytest.mark.full),
        pytest.param(lambda x: cuscan.cummax(x, axis=0, return_indices=True, reverse=True), marks=pytest.mark.full),
    ],
)
def test_opcheck(function: Any) -> None:
    torch.library.opcheck(torch.ops.cuscan.scan.default, arguments_of(function, numbers(3, 5).requires_grad_()))


@pytest.mark.skipif(not hasattr(torch.Tag, "cudagraph_unsafe"), reason="torch has no such tag")
def test_calls_that_wait_for_the_device_are_kept_out_of_cuda_graphs() -> None:
    """These are calls that check offsets; their backward does not wait."""
    graphs: list[Any] = []

    def keep(graph: Any, _: Any) -> Any:
        graphs.append({str(node.target): getattr(node.target, "tags", ()) for node in graph.graph.nodes})
        return make_boxed_func(graph)

    offsets = torch.tensor([0, 2, 5])
    for validate, name in ((False, "cuscan.scan.default"), (True, "cuscan.scan_validated.default")):
        backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
        function = compiled(lambda x, v=validate: cuscan.cumprod(x, offsets=offsets, validate=v).sum(), backend)
        trained(function, numbers(3, 5))
        forward, backward = graphs[-2:]
        assert (torch.Tag.cudagraph_unsafe in forward[name]) is validate
        assert torch.Tag.cudagraph_unsafe not in backward["cuscan.scan.default"]
        assert "cuscan.scan_validated.default" not in backward
        with pytest.raises(Exception, match="offsets"):
            function(numbers(3, 4)) if validate else cuscan.cumsum(numbers(3, 4), offsets=offsets, validate=True)


def test_operators_of_the_user_are_found_by_what_they_are() -> None:
    x = numbers(3)
    arguments = list(arguments_of(lambda x: cuscan.scan(x, TIMES), x))
    cuscan.Operator("times", "earlier * later", 1, numpy=np.multiply, vjp=TIMES.vjp)  # an equal one, gone at once
    assert cuscan.Operator("times", "earlier * later", 1, numpy=np.multiply).key != TIMES.key
    others = [
        cuscan.Operator("times", "earlier * later", 1, numpy=np.multiply, vjp=lambda earlier, later, g: (g, g))
        for _ in range(2)  # their lambdas are not equal
    ]
    assert len({op.key for op in (TIMES, *others)}) == 3
    assert [find_key(op.key) for op in (TIMES, *others)] == [TIMES, *others]
    assert torch.equal(torch.ops.cuscan.scan(*arguments)[0], cuscan.cumprod(x))
    place = [isinstance(a, str) for a in arguments].index(True)
    arguments[place] = "gone#00000000"
    with pytest.raises(cuscan.ScanValueError, match="make the Operator before the graph runs"):
        torch.ops.cuscan.scan(*arguments)


# ---- compilers that need g++, and GPUs -------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("g++"), reason="inductor needs g++")
def test_inductor() -> None:
    x = numbers(3, 5)
    torch.testing.assert_close(trained(compiled(loss, "inductor"), x), trained(loss, x))
    function = compiled(lambda x: cuscan.logcumsumexp(x).sin(), "inductor", dynamic=True)
    for n in (4, 9):
        torch.testing.assert_close(function(numbers(3, n)), cuscan.logcumsumexp(numbers(3, n)).sin())


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("g++"), reason="inductor needs g++")
def test_ahead_of_time(tmp_path: Any) -> None:
    layer, x = Layer(), numbers(8, 10)
    length = torch.export.Dim("length", min=2, max=1000)
    program = torch.export.export(layer, (x,), dynamic_shapes={"x": {1: length}})
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "layer.pt2"))
    loaded = torch._inductor.aoti_load_package(path)
    for n in (10, 77):
        torch.testing.assert_close(loaded(numbers(8, n)), layer(numbers(8, n)))


@pytest.mark.gpu
def test_gradients_on_a_gpu_wait_for_nothing() -> None:
    x = numbers(3, 500)
    expected, on_gpu = trained(step, x), x.cuda()
    trained(step, on_gpu)  # so that kernels are compiled
    torch.cuda.set_sync_debug_mode("error")  # an error where the host waits for the GPU
    try:
        got = trained(step, on_gpu)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(got.cpu(), expected)


@pytest.mark.gpu
def test_captures_anew_for_every_size_keep_nothing() -> None:
    """`reduce-overhead` captures a graph for each size; all of them share one pool."""
    from torch._inductor import config

    function = compiled(lambda x: cuscan.cumsum(x * 2, axis=0).sin(), mode="reduce-overhead", dynamic=True)
    x = numbers(9000, 50).float().cuda()

    def check(sizes: range) -> int:
        for n in sizes:
            part = x[:n].clone()
            for _ in range(3):  # run, captured, replayed
                got = function(part)
            torch.testing.assert_close(got, cuscan.cumsum(part * 2, axis=0).sin())
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return int(torch.cuda.memory_reserved())

    with config.patch({"triton.cudagraph_dynamic_shape_warn_limit": None}):
        before = check(range(8980, 9000))
        assert check(range(8880, 8980)) <= before + (2 << 20)


@pytest.mark.gpu
def test_replays_train_as_eager_calls_do() -> None:
    """Forward and backward are graphs; a call that checks its offsets stays outside of them."""
    offsets = torch.tensor([0, 100, 700], device="cuda")

    def checked(x: Any) -> Any:
        return (cuscan.cumsum(x.sin(), axis=0, offsets=offsets, validate=True) * x).square().mean()

    for function in (step, checked):
        torch._dynamo.reset()
        replayed = compiled(function, mode="reduce-overhead")
        for seed in range(5):  # run, captured, replayed
            x = numbers(700, 30, seed=seed).cuda()
            torch.testing.assert_close(trained(replayed, x), trained(function, x))
    offsets[1] = 800
    with pytest.raises(cuscan.ScanValueError, match="offsets"):
        replayed(x)
