"""Types that checkers infer for a user's calls; `test_typing.py` runs mypy and pyright on this file."""

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import cuscan


class Tensor:
    """An array of an unknown library."""

    def __dlpack__(self, *, stream: int | None = None) -> object:
        raise NotImplementedError

    def __dlpack_device__(self) -> tuple[int, int]:
        raise NotImplementedError


def arrays_of_numpy(x: NDArray[np.int8], flags: NDArray[np.bool_]) -> None:
    assert_type(cuscan.cumsum(x), NDArray[Any])
    assert_type(cuscan.cumsum(x, 0, reverse=True, mask=flags), NDArray[Any])
    assert_type(cuscan.cumsum(x, axis=None, dtype=np.float32), NDArray[Any])
    assert_type(cuscan.nancumprod(x, dim=1, initial=2), NDArray[Any])
    assert_type(cuscan.cummax(x), NDArray[Any])
    assert_type(cuscan.cummax(x, return_indices=False), NDArray[Any])
    assert_type(cuscan.cummin(x, 0, return_indices=True, ties="last"), tuple[NDArray[Any], NDArray[Any]])
    assert_type(cuscan.linear_recurrence(0.5, x), NDArray[Any])
    assert_type(cuscan.linear_recurrence(x, x, return_last=True), tuple[NDArray[Any], NDArray[Any]])
    assert_type(cuscan.cumulative_sum(x, axis=0), NDArray[Any])
    assert_type(cuscan.scan(x, "prod", axis=0, exclusive=True), NDArray[Any])
    assert_type(cuscan.scan(x, np.add), NDArray[Any])
    assert_type(cuscan.scan(x, max), NDArray[Any])
    total, carry = cuscan.cumsum(x, return_carry=True)
    cuscan.scan(total, axis=0, carry=carry)


def carries_of_numpy(x: NDArray[np.int8]) -> None:
    before = cuscan.total(x)
    assert_type(before, NDArray[Any])
    assert_type(cuscan.total(x, "max", dim=0, carry=before), NDArray[Any])
    assert_type(cuscan.total(x, keys=x), Any)
    assert_type(cuscan.total((x, x), "linear_recurrence"), Any)
    assert_type(cuscan.cumsum(x, carry=before), NDArray[Any])
    assert_type(cuscan.cumsum(x, 0, carry=before, return_carry=True), tuple[NDArray[Any], Any])
    assert_type(cuscan.scan(x, "mul", return_carry=True), tuple[NDArray[Any], Any])
    assert_type(cuscan.cummax(x, return_carry=True), tuple[NDArray[Any], Any])
    assert_type(cuscan.cummin(x, return_indices=True, return_carry=True), tuple[NDArray[Any], NDArray[Any], Any])
    assert_type(cuscan.linear_recurrence(0.5, x, return_carry=True), tuple[NDArray[Any], Any])
    assert_type(
        cuscan.linear_recurrence(0.5, x, return_last=True, return_carry=True),
        tuple[NDArray[Any], NDArray[Any], Any],
    )


def arrays_of_others(x: Tensor) -> None:
    assert_type(cuscan.cumsum(x, 1), Tensor)
    assert_type(cuscan.logcumsumexp(x, skipna=True), Tensor)
    assert_type(cuscan.cummax(x, return_indices=True), tuple[Tensor, Tensor])
    assert_type(cuscan.linear_recurrence(x, x), Tensor)
    assert_type(cuscan.linear_recurrence(0.5, x, return_last=True), tuple[Tensor, Tensor])
    assert_type(cuscan.cumulative_prod(x, include_initial=True), Tensor)
    assert_type(cuscan.scan(x, operator.mul), Tensor)
    assert_type(cuscan.total(x, "xor"), Tensor)
    assert_type(cuscan.cumprod(x, return_carry=False), Tensor)
    assert_type(cuscan.nancumsum(x, return_carry=True), tuple[Tensor, Any])
    assert_type(cuscan.cummax(x, return_indices=True, return_carry=True), tuple[Tensor, Tensor, Any])
    assert_type(cuscan.linear_recurrence(x, x, return_last=True, return_carry=True), tuple[Tensor, Tensor, Any])


def every_function_on_arrays_of_numpy(x: NDArray[np.int8]) -> None:
    assert_type(cuscan.cumsum(x, 0, reverse=True), NDArray[Any])
    assert_type(cuscan.cumsum(x, dim=0, return_carry=True), tuple[NDArray[Any], Any])
    assert_type(cuscan.cumprod(x, 0, reverse=True), NDArray[Any])
    assert_type(cuscan.cumprod(x, dim=0, return_carry=True), tuple[NDArray[Any], Any])
    assert_type(cuscan.nancumsum(x, 0, reverse=True), NDArray[Any])
    assert_type(cuscan.nancumsum(x, dim=0, return_carry=True), tuple[NDArray[Any], Any])
    assert_type(cuscan.nancumprod(x, 0, reverse=True), NDArray[Any])
    assert_type(cuscan.nancumprod(x, dim=0, return_carry=True), tuple[NDArray[Any], Any])
    assert_type(cuscan.logcumsumexp(x, 0, reverse=True), NDArray[Any])
    assert_type(cuscan.logcumsumexp(x, dim=0, return_carry=True), tuple[NDArray[Any], Any])
    assert_type(cuscan.cummax(x, 0, reverse=True), NDArray[Any])
    assert_type(cuscan.cummax(x, dim=0, return_carry=True), tuple[NDArray[Any], Any])
    assert_type(cuscan.cummin(x, 0, reverse=True), NDArray[Any])
    assert_type(cuscan.cummin(x, dim=0, return_carry=True), tuple[NDArray[Any], Any])
    assert_type(cuscan.cummax(x, 0, return_indices=True), tuple[NDArray[Any], NDArray[Any]])
    both = cuscan.cummax(x, ties="last", return_indices=True, return_carry=True)
    assert_type(both, tuple[NDArray[Any], NDArray[Any], Any])
    assert_type(cuscan.cummin(x, 0, return_indices=True), tuple[NDArray[Any], NDArray[Any]])
    both = cuscan.cummin(x, ties="last", return_indices=True, return_carry=True)
    assert_type(both, tuple[NDArray[Any], NDArray[Any], Any])
    assert_type(cuscan.linear_recurrence(0.5, x, dim=0), NDArray[Any])
    assert_type(cuscan.linear_recurrence(x, x, return_last=True), tuple[NDArray[Any], NDArray[Any]])
    assert_type(cuscan.linear_recurrence(x, x, return_carry=True), tuple[NDArray[Any], Any])
    last = cuscan.linear_recurrence(x, x, return_last=True, return_carry=True)
    assert_type(last, tuple[NDArray[Any], NDArray[Any], Any])
    assert_type(cuscan.cumulative_sum(x, axis=0, include_initial=True), NDArray[Any])
    assert_type(cuscan.cumulative_prod(x, axis=0, include_initial=True), NDArray[Any])
    assert_type(cuscan.scan(x, "add"), NDArray[Any])
    assert_type(cuscan.scan(x, "sum"), NDArray[Any])
    assert_type(cuscan.scan(x, "mul"), NDArray[Any])
    assert_type(cuscan.scan(x, "prod"), NDArray[Any])
    assert_type(cuscan.scan(x, "min"), NDArray[Any])
    assert_type(cuscan.scan(x, "max"), NDArray[Any])
    assert_type(cuscan.scan(x, "and"), NDArray[Any])
    assert_type(cuscan.scan(x, "or"), NDArray[Any])
    assert_type(cuscan.scan(x, "xor"), NDArray[Any])
    assert_type(cuscan.scan(x, "logaddexp"), NDArray[Any])
    assert_type(cuscan.total(x, "add"), NDArray[Any])
    assert_type(cuscan.total(x, "sum"), NDArray[Any])
    assert_type(cuscan.total(x, "mul"), NDArray[Any])
    assert_type(cuscan.total(x, "prod"), NDArray[Any])
    assert_type(cuscan.total(x, "min"), NDArray[Any])
    assert_type(cuscan.total(x, "max"), NDArray[Any])
    assert_type(cuscan.total(x, "and"), NDArray[Any])
    assert_type(cuscan.total(x, "or"), NDArray[Any])
    assert_type(cuscan.total(x, "xor"), NDArray[Any])


def every_function_on_arrays_of_others(x: Tensor) -> None:
    assert_type(cuscan.cumsum(x, 0, reverse=True), Tensor)
    assert_type(cuscan.cumsum(x, dim=0, return_carry=True), tuple[Tensor, Any])
    assert_type(cuscan.cumprod(x, 0, reverse=True), Tensor)
    assert_type(cuscan.cumprod(x, dim=0, return_carry=True), tuple[Tensor, Any])
    assert_type(cuscan.nancumsum(x, 0, reverse=True), Tensor)
    assert_type(cuscan.nancumsum(x, dim=0, return_carry=True), tuple[Tensor, Any])
    assert_type(cuscan.nancumprod(x, 0, reverse=True), Tensor)
    assert_type(cuscan.nancumprod(x, dim=0, return_carry=True), tuple[Tensor, Any])
    assert_type(cuscan.logcumsumexp(x, 0, reverse=True), Tensor)
    assert_type(cuscan.logcumsumexp(x, dim=0, return_carry=True), tuple[Tensor, Any])
    assert_type(cuscan.cummax(x, 0, reverse=True), Tensor)
    assert_type(cuscan.cummax(x, dim=0, return_carry=True), tuple[Tensor, Any])
    assert_type(cuscan.cummin(x, 0, reverse=True), Tensor)
    assert_type(cuscan.cummin(x, dim=0, return_carry=True), tuple[Tensor, Any])
    assert_type(cuscan.cummax(x, 0, return_indices=True), tuple[Tensor, Tensor])
    both = cuscan.cummax(x, ties="last", return_indices=True, return_carry=True)
    assert_type(both, tuple[Tensor, Tensor, Any])
    assert_type(cuscan.cummin(x, 0, return_indices=True), tuple[Tensor, Tensor])
    both = cuscan.cummin(x, ties="last", return_indices=True, return_carry=True)
    assert_type(both, tuple[Tensor, Tensor, Any])
    assert_type(cuscan.linear_recurrence(0.5, x, dim=0), Tensor)
    assert_type(cuscan.linear_recurrence(x, x, return_last=True), tuple[Tensor, Tensor])
    assert_type(cuscan.linear_recurrence(x, x, return_carry=True), tuple[Tensor, Any])
    last = cuscan.linear_recurrence(x, x, return_last=True, return_carry=True)
    assert_type(last, tuple[Tensor, Tensor, Any])
    assert_type(cuscan.cumulative_sum(x, axis=0, include_initial=True), Tensor)
    assert_type(cuscan.cumulative_prod(x, axis=0, include_initial=True), Tensor)
    assert_type(cuscan.scan(x, "add"), Tensor)
    assert_type(cuscan.scan(x, "sum"), Tensor)
    assert_type(cuscan.scan(x, "mul"), Tensor)
    assert_type(cuscan.scan(x, "prod"), Tensor)
    assert_type(cuscan.scan(x, "min"), Tensor)
    assert_type(cuscan.scan(x, "max"), Tensor)
    assert_type(cuscan.scan(x, "and"), Tensor)
    assert_type(cuscan.scan(x, "or"), Tensor)
    assert_type(cuscan.scan(x, "xor"), Tensor)
    assert_type(cuscan.scan(x, "logaddexp"), Tensor)
    assert_type(cuscan.total(x, "add"), Tensor)
    assert_type(cuscan.total(x, "sum"), Tensor)
    assert_type(cuscan.total(x, "mul"), Tensor)
    assert_type(cuscan.total(x, "prod"), Tensor)
    assert_type(cuscan.total(x, "min"), Tensor)
    assert_type(cuscan.total(x, "max"), Tensor)
    assert_type(cuscan.total(x, "and"), Tensor)
    assert_type(cuscan.total(x, "or"), Tensor)
    assert_type(cuscan.total(x, "xor"), Tensor)


def operators_of_the_user(x: NDArray[np.float32], y: Tensor) -> None:
    greatest = cuscan.Operator("greatest", "earlier > later ? earlier : later", 0, numpy=np.maximum)
    assert_type(cuscan.scan(x, greatest), NDArray[Any])
    assert_type(cuscan.scan((y, y), greatest), tuple[Tensor, ...])
    assert_type(cuscan.scan((y, y), greatest, return_carry=True), tuple[Any, ...])
    greatest.compile(arch=90)
    greatest.check(x, tolerance=1e-3)


def mistakes(x: NDArray[np.float32]) -> None:
    cuscan.cumsum([1, 2, 3])  # wrong
    cuscan.cumsum(x, "0")  # wrong
    cuscan.cumsum(x, revers=True)  # wrong
    cuscan.scan(x, "plus")  # wrong
    cuscan.cummax(x, ties="middle")  # wrong
    cuscan.nancumsum(x, skipna=False)  # wrong
    cuscan.linear_recurrence(0.5, x, exclusive=True)  # wrong
    cuscan.cumsum(x, return_carry=1)  # wrong
    cuscan.total(x, exclusive=True)  # wrong
    cuscan.scan(x, axis=None)  # wrong
    cuscan.cumulative_sum(x, 0)  # wrong
    cuscan.cumprod(x, 0, 1)  # wrong
    cuscan.cummin(x, dims=0)  # wrong
    cuscan.logcumsumexp(x, return_indices=True)  # wrong
    cuscan.Operator("f", len, 0)  # wrong
    cuscan.total([1, 2])  # wrong
