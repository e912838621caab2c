"""Properties of user operators: how they print, and what checks find before and during a scan."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
from operator_examples import AFFINE, EXAMPLES, MODULAR_PRODUCT
from views import operands, view

import cuscan
from cuscan import ScanError, ScanTypeError, ScanValueError, custom
from cuscan.request import make_request
from cuscan.request.call import Flags


def refused(kind, *texts, x, op, **call):
    with pytest.raises(kind) as caught:
        cuscan.scan(x, op, **call)
    for text in texts:
        assert text in str(caught.value), f"{text!r} is not in {str(caught.value)!r}"


def test_an_identity_that_does_not_fit_the_dtype_is_an_error():
    smallest = cuscan.Operator("smallest", "later < earlier ? later : earlier", float("inf"), numpy=np.minimum)
    assert cuscan.scan(np.array([3.0, 1.0]), smallest, exclusive=True).tolist() == [np.inf, 3]
    for dtype in ("int64", "uint8", "bool"):
        refused(ScanValueError, "identity=inf does not fit dtype " + dtype, x=np.ones(3, dtype), op=smallest)
    refused(ScanValueError, "identity=inf", x=np.ones(3), op=smallest, dtype="int32")
    large = cuscan.Operator("large", "earlier", 1e30, numpy=lambda earlier, later: earlier)
    refused(ScanValueError, "identity=1e+30 does not fit dtype float16", x=np.ones(3, "f2"), op=large)
    with pytest.raises(ScanValueError, match="identity=inf does not fit dtype int64"):  # before any kernel is compiled
        make_request(Flags(smallest), operands(view((3,), "int64")), has_initial=False)


STATE = {"count": "int32", "total": "float32"}


def counting(total=lambda a, b: a["total"] + b["total"], count=lambda a, b: a["count"] + b["count"]):
    return cuscan.Operator(
        "counting",
        "State{earlier.count + later.count, earlier.total + later.total}",
        (0, 0),
        state=STATE,
        numpy=lambda earlier, later: (count(earlier, later), total(earlier, later)),
    )


@pytest.mark.parametrize(
    "op, text",
    [
        (counting(count=lambda a, b: 0.5), "in field 'count', must return an array of dtype int32; got float64"),
        (counting(lambda a, b: None), "in field 'total', must return an array; got NoneType"),
        (counting(lambda a, b: np.max(b["total"])), "in field 'total', must return an array of shape"),
        (counting(lambda a, b: b["total"][..., :1]), "in field 'total', must return an array of shape"),
        (counting(count=lambda a, b: a["count"] + b["total"]), "in field 'count', must return an array of dtype int32"),
        (
            counting(lambda a, b: a["total"] + 0j),
            "in field 'total', must return an array of dtype float32; got complex",
        ),
        (counting(lambda a, b: b["total"].astype(object)), "dtype float32; got object"),
    ],
)
def test_what_numpy_returns_is_checked(op, text):
    x = np.ones(9, np.int32), np.ones(9, np.float32)
    refused(ScanError, "numpy= of op='counting'", text, x=x, op=op)


def test_what_numpy_returns_may_be_wider():
    op = counting(lambda a, b: a["total"] + b["total"].astype(float), lambda a, b: a["count"] + b["count"].astype("i8"))
    count, total = cuscan.scan((np.ones(3, np.int32), np.ones(3, np.float32)), op)
    assert (count.dtype, total.dtype) == (np.int32, np.float32)
    assert (count.tolist(), total.tolist()) == ([1, 2, 3], [1, 2, 3])
    assert cuscan.scan((np.ones(3, np.int32), np.ones(3, np.float32)), counting(lambda a, b: 7))[1].tolist() == [
        1,
        7,
        7,
    ]
    flags = cuscan.Operator("either", "earlier || later", 0, numpy=np.logical_or)
    assert cuscan.scan(np.array([False, True, False]), flags).tolist() == [False, True, True]


def multiply_states(earlier, later):
    return earlier["count"] * later["count"], earlier["total"] * later["total"]


@pytest.mark.parametrize(
    "op",
    [
        cuscan.Operator("plus", "earlier + later", 0, numpy=np.add),
        cuscan.Operator("least", "earlier < later ? earlier : later", float("inf")),
        cuscan.Operator("nan", "earlier", float("nan")),
        cuscan.Operator("products", "State{1, 2}", {"count": 1, "total": 1.5}, state=STATE, numpy=multiply_states),
    ],
    ids=lambda op: op.name,
)
def test_operators_pickle_and_print_themselves(op, monkeypatch):
    sent = pickle.dumps(op)
    assert pickle.loads(sent) is op  # in the original process
    monkeypatch.setattr(custom, "_PICKLED", {})  # as in another process
    again = pickle.loads(sent)
    assert again is not op and pickle.loads(sent) is again is pickle.loads(pickle.dumps(again))
    assert again == op and hash(again) == hash(op) and copy.deepcopy(op) == op
    assert (again.source, again.fields, again.dtypes) == (op.source, op.fields, op.dtypes)
    assert again.key == op.key  # all that is stored for one also serves the other
    shown = repr(op)
    assert shown.startswith(f"Operator({op.name!r}, ") and ("state=" in shown) == bool(op.dtypes)
    assert ("numpy=" in shown) == (op.combine is not None)
    if op.combine is None:
        assert eval(shown, {"Operator": cuscan.Operator, "inf": np.inf, "nan": np.nan}) == op


def test_an_operator_on_spawned_workers():
    """A spawned worker unpickles an operator in a new process."""
    op = cuscan.Operator("plus", "earlier + later", 0, numpy=np.add)
    code = "import pickle, sys, cuscan, numpy; print(cuscan.scan(numpy.ones(3), pickle.load(sys.stdin.buffer))[-1])"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(op), capture_output=True, check=True)
    assert done.stdout.strip() == b"3.0"


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_check_finds_nothing_in_good_operators(example):
    example.operator().check(*example.draw(np.random.default_rng(6), (30,)))
    example.operator().check(*example.draw(np.random.default_rng(7), (6, 20)))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_check_leaves_rounding_alone(dtype):
    numbers = np.random.default_rng(8).normal(size=200).astype(dtype)
    for numpy, identity in ((np.add, 0), (np.multiply, 1), (np.logaddexp, -np.inf), (np.hypot, 0)):
        op = cuscan.Operator("f", "earlier", identity, numpy=numpy)
        op.check(np.abs(numbers))
        if numpy is not np.hypot:
            op.check(numbers)
    maps = [numbers, numbers[::-1]]
    AFFINE.operator(state=dict.fromkeys(AFFINE.state, "float32")).check(*maps)


WRONG = {
    "mean": (lambda a, b: (a + b) / 2, "associative"),
    "minus": (np.subtract, "associative"),
    "power": (np.power, "associative"),
    "norm1": (lambda a, b: np.abs(a) + np.abs(b), "identity"),
    "decay": (lambda a, b: 0.999 * a + b, "associative"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("count", [10, 500])
def test_check_finds_operators_that_are_no_monoids(name, count):
    numpy, text = WRONG[name]
    op = cuscan.Operator(name, "earlier", 0, numpy=numpy)
    with pytest.raises(ScanValueError, match=rf"^op='{name}' .*{text}"):
        op.check(np.random.default_rng(9).normal(size=count).astype(np.float32))


def test_check_shows_its_counterexample():
    op = cuscan.Operator("minus", "earlier - later", 0, numpy=np.subtract)
    with pytest.raises(ScanValueError, match=r"a = 5, b = 5, c = 5, \(a \. b\) \. c = -5 and a \. \(b \. c\) = 5"):
        op.check(np.array([5]))
    last = cuscan.Operator("last", "later", 7, numpy=lambda earlier, later: later + 0 * earlier)
    with pytest.raises(ScanValueError, match=r"op='last' has no identity in 7: 3 \. 7 = 7"):
        last.check(np.array([3]))
    op.check(np.array([0.0]))  # such a sample shows no error
    loose = cuscan.Operator("decay", "earlier", 0, numpy=WRONG["decay"][0])
    loose.check(np.array([1.0, 2.0]), tolerance=0.01)


@pytest.mark.parametrize("library", ["torch", "jax.numpy", "array_api_strict"])
def test_check_takes_samples_of_any_library(library):
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    samples = module.asarray(np.array([5.0, 2.0, 1.0], np.float32))
    samples = samples.requires_grad_() if library == "torch" else samples
    cuscan.Operator("plus", "earlier + later", 0, numpy=np.add).check(samples)
    with pytest.raises(ScanValueError, match=r"^op='minus' is not associative"):
        cuscan.Operator("minus", "earlier - later", 0, numpy=np.subtract).check(samples)


def test_check_wants_samples_and_the_numpy_callable():
    with pytest.raises(ScanTypeError, match="numpy= callable"):
        AFFINE.operator(numpy=None).check(np.ones(3), np.ones(3))
    for samples in ((), (np.ones(3),), (np.ones(0), np.ones(0)), (np.array(["a"]), np.ones(1))):
        with pytest.raises(ScanTypeError, match="samples must be 2 arrays, one a field, of elements"):
            AFFINE.operator().check(*samples)


@pytest.fixture
def nvrtc():
    """NVRTC, which compiles without a GPU."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    try:
        cupy.cuda.nvrtc.getVersion()
    except RuntimeError:
        pytest.skip("NVRTC is not installed")


@pytest.mark.usefixtures("nvrtc")
def test_compile_finds_syntax_errors_and_shows_the_line():
    AFFINE.operator().compile()
    MODULAR_PRODUCT.operator().compile(arch=80, dtype="int64")
    for broken in (
        MODULAR_PRODUCT.operator(combine="earlier *% later"),
        AFFINE.operator(combine="State{latr.scale, 0}"),
    ):
        with pytest.raises(cuscan.CompileError, match=rf'"?combine of {broken.name}"?\(1\): error') as caught:
            broken.compile(arch=90)
        assert broken._made_of["combine"] in str(caught.value)


@pytest.mark.usefixtures("nvrtc")
def test_compile_is_for_an_architecture():
    newer = MODULAR_PRODUCT.operator(
        combine="\n#if __CUDA_ARCH__ >= 900\nreturn nothing_of_the_kind;\n#endif\nreturn earlier + later;"
    )
    newer.compile(arch=80)
    with pytest.raises(cuscan.CompileError, match="nothing_of_the_kind"):
        newer.compile(arch=90)


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("dtype", ["f4", np.float32, np.dtype("int16"), "bfloat16", "torch.float64"])
def test_compile_takes_dtypes_of_any_library(dtype):
    if dtype == "torch.float64":
        dtype = pytest.importorskip("torch", reason="torch is not installed").float64
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    MODULAR_PRODUCT.operator(combine="earlier * later").compile(dtype=dtype, arch=np.int64(90))


def test_compile_and_check_refuse_other_dtypes():
    for dtype in ("nonsense", object):
        with pytest.raises(ScanTypeError, match=r"^dtype must be one of .* \(cuscan.Operator.compile\)"):
            MODULAR_PRODUCT.operator().compile(dtype=dtype)
    with pytest.raises(ScanTypeError, match="complex64"):
        MODULAR_PRODUCT.operator().compile(dtype="complex64")
    with pytest.raises(ScanTypeError, match="samples must be one array of elements"):
        MODULAR_PRODUCT.operator().check(np.ones(3, "complex64"))


@pytest.mark.parametrize("tolerance", ["a", -1.0, float("nan")])
def test_check_wants_a_tolerance_that_is_one(tolerance):
    with pytest.raises(ScanValueError, match=r"^tolerance must be a number, 0 or more; got"):
        MODULAR_PRODUCT.operator().check(np.ones(3, int), tolerance=tolerance)


@pytest.mark.parametrize("arch", ["sm_90", 9.0, 5])
def test_compile_wants_the_number_of_an_architecture(arch):
    with pytest.raises(ScanValueError, match="arch must be an integer such as 90"):
        MODULAR_PRODUCT.operator().compile(arch=arch)


def test_compile_needs_cupy(monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("cupy", "cuscan.compile.module"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(cuscan.MissingDependencyError, match=r"Operator.compile needs CuPy and NVRTC: pip install"):
        AFFINE.operator().compile()
