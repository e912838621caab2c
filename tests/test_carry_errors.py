"""Invalid carries, and the errors that they raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cuscan

X, C = np.ones((2, 5), np.float32), np.zeros(2)
INT, KEYS = np.zeros(2, np.int32), np.zeros(5, np.int64)
FLOAT = np.zeros(2, np.float32)
SHAPE, KIND = cuscan.ScanValueError, cuscan.ScanTypeError

WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a line too many": (
        lambda: cuscan.scan(X, carry=np.zeros(3)),
        SHAPE,
        r"carry has shape \(3,\); the axes of x beside the scanned one are \(2,\)",
    ),
    "the axis kept": (lambda: cuscan.cumsum(X, carry=np.zeros((2, 1))), SHAPE, r"carry has shape \(2, 1\)"),
    "another axis": (lambda: cuscan.cumsum(X, axis=0, carry=C), SHAPE, r"beside the scanned one are \(5,\)"),
    "of a total": (lambda: cuscan.total(X, carry=np.zeros(())), SHAPE, r"carry has shape \(\)"),
    "of a field": (
        lambda: cuscan.linear_recurrence(X, X, carry=(C, np.zeros(5))),
        SHAPE,
        r"carry\[1\] has shape \(5,\); the axes of b beside",
    ),
    "narrow": (
        lambda: cuscan.scan(X, carry=FLOAT),
        KIND,
        r"carry \(value\) has dtype float32; it is carried in float64",
    ),
    "narrow positions": (
        lambda: cuscan.cummax(X, return_indices=True, carry=(FLOAT, INT, np.zeros(2, np.int64))),
        KIND,
        r"carry\[1\] \(index\) has dtype int32; it is carried in int64",
    ),
    "other keys": (
        lambda: cuscan.scan(X, keys=KEYS, carry=(C, INT)),
        KIND,
        r"carry\[1\] \(key\) has dtype int32; it is carried in int64",
    ),
    "a field too many": (lambda: cuscan.scan(X, carry=(C, C)), KIND, r"must be one array \(value of float64\).*got 2"),
    "far too many": (lambda: cuscan.scan(X, carry=(C,) * 30), KIND, "18 arrays at most; got 30"),
    "no positions": (
        lambda: cuscan.cummax(X, return_indices=True, carry=FLOAT),
        KIND,
        r"tuple of 3 arrays \(value of float32, index of int64, count of int64\) in this call; got 1",
    ),
    "no key": (lambda: cuscan.cumsum(X, keys=KEYS, carry=C), KIND, r"\(value of float64, key of int64\).*got 1"),
    "no decay": (
        lambda: cuscan.linear_recurrence(0.5, X, carry=C),
        KIND,
        r"\(decay of float64, state of float64\) in this call; got 1",
    ),
    "nothing": (lambda: cuscan.scan(X, carry=()), KIND, "carry is an empty tuple; pass None"),
    "a list": (lambda: cuscan.scan(X, carry=[0.0, 0.0]), KIND, r"carry must be .*got list; pass np.asarray\(carry\)"),
    "a number": (lambda: cuscan.scan(X, carry=0.0), KIND, r"carry must be .*got float"),
    "and initial": (
        lambda: cuscan.linear_recurrence(0.5, X, carry=(C, C), initial=1.0),
        SHAPE,
        "initial and carry exclude each other",
    ),
    "no flag": (lambda: cuscan.scan(X, return_carry=1), KIND, "return_carry must be True or False; got 1"),
    "a total of one array": (
        lambda: cuscan.total(X, "linear_recurrence"),
        KIND,
        r"x must be a tuple of 2 arrays \(a, b\) for op='linear_recurrence'; got ndarray",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_a_carry(name: str) -> None:
    call, kind, text = WRONG[name]
    with pytest.raises(kind, match=text):
        call()


def test_out_is_no_carry() -> None:
    out = np.zeros((2, 5))
    for x in (np.ones((2, 5)), out):
        with pytest.raises(SHAPE, match="out overlaps carry; it must be another array"):
            cuscan.scan(x, carry=out[:, 0], out=out)


def test_totals_have_no_results() -> None:
    for name in ("return_carry", "exclusive", "include_initial", "out"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            cuscan.total(X, **{name: True})  # type: ignore[call-overload]


def test_carries_of_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.ones(2, 5)
    with pytest.raises(KIND, match="carry is of numpy and x of torch"):
        cuscan.scan(x, carry=C)
    with pytest.raises(KIND, match="carry is on device meta"):
        cuscan.scan(x, carry=torch.zeros(2, dtype=torch.float64, device="meta"))
