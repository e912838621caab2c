"""Types that checkers infer for calls on torch tensors and JAX arrays, from the types that these libraries declare."""

import jax
import jax.numpy as jnp
import torch
from typing_extensions import assert_type

import cuscan


def tensors(x: torch.Tensor) -> None:
    assert_type(cuscan.cumsum(x, 1), torch.Tensor)
    assert_type(cuscan.cumsum(x, dim=0, initial=torch.tensor(1.0)), torch.Tensor)
    assert_type(cuscan.cummax(x, return_indices=True, ties="last"), tuple[torch.Tensor, torch.Tensor])
    assert_type(cuscan.linear_recurrence(0.5, x, return_last=True), tuple[torch.Tensor, torch.Tensor])
    assert_type(cuscan.scan(x, torch.maximum, mask=x > 0), torch.Tensor)
    assert_type(cuscan.cumulative_sum(x, axis=0, dtype=torch.float64), torch.Tensor)
    assert_type(cuscan.total(x), torch.Tensor)
    cuscan.cumsum([x, x])  # wrong
    cuscan.cumsum(x, dims=0)  # wrong


def arrays_of_jax(x: jax.Array) -> None:
    assert_type(cuscan.cumsum(x, 1), jax.Array)
    assert_type(cuscan.cumsum(jnp.add(x, 1), axis=None), jax.Array)
    assert_type(cuscan.cummin(x, return_indices=True), tuple[jax.Array, jax.Array])
    assert_type(cuscan.linear_recurrence(x, x), jax.Array)
    assert_type(cuscan.scan(x, jnp.multiply, exclusive=True), jax.Array)
    assert_type(cuscan.cumulative_prod(x, include_initial=True), jax.Array)
    assert_type(cuscan.total(x, "max"), jax.Array)
    cuscan.cumsum(x, axis="0")  # wrong
