"""`python -m benchmarks.jax_calls`: it runs, and a wrong result does not pass."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("jax", reason="JAX is not installed")

from benchmarks import jax_calls

LAYER = (2, 6, 3, "float32")


@pytest.fixture(autouse=True)
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax_calls, "ROUNDS", 1)


def test_a_training_step_is_the_same_by_every_way() -> None:
    found = jax_calls.training(*LAYER)
    assert list(found) == ["by_cuscan", "by_associative_scan", "by_loop"]
    assert all(part["us"] > 0 and part["temporary MiB"] >= 0 for part in found.values())


def test_a_wrong_recurrence_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(gate: Any, x: Any) -> Any:
        return jax_calls.by_loop(gate, x) + 1

    monkeypatch.setattr(jax_calls, "by_cuscan", wrong)
    with pytest.raises(AssertionError):
        jax_calls.training(*LAYER)


@pytest.mark.full
def test_calls_are_timed() -> None:
    host: dict[str, Any] = jax_calls.host_time(3)
    assert list(host) == ["eager", "jit(x + 1)", "jit(lax.cummin)", "jit", "each in a program"]
    assert set(jax_calls.gpu_time((300,), "float32")) == {"eager", "jit", "jit(lax.cumsum)"}
