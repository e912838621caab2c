"""`python -m benchmarks.jax_calls`: what a scan costs inside `jax.jit`, and a training step through a recurrence.

Results are checked first. Times are minima of several rounds, in microseconds; peers are the same function made of
`jax.lax`. On the CPU it shows that it runs, and its numbers mean nothing.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else there is no memory for CuPy

import jax
import jax.numpy as jnp
import numpy as np

import cuscan

Array = Any
ROUNDS = 7


def seconds(run: Callable[[], Array], calls: int) -> float:
    """Seconds of one call, of many that are queued before any is waited for."""
    jax.block_until_ready(run())
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(calls):
            result = run()
        jax.block_until_ready(result)
        best = min(best, (time.perf_counter() - start) / calls)
    return best


# ---- one call --------------------------------------------------------------------------------------------------------


def host_time(count: int = 16) -> dict[str, float]:
    """Of a scan on a small array: called by itself, in `jit` by itself, and each of many in one program."""
    x = jnp.ones(1000)

    def repeated(function: Callable[[Array], Array], times: int) -> Callable[[], Array]:
        program = jax.jit(lambda x: functools.reduce(lambda y, _: function(y), range(times), x))
        return lambda: program(x)

    def least(y: Array) -> Array:
        return cuscan.cummin(y)  # of its own result, so that values stay

    assert (repeated(least, count)() == x).all()
    one, many = seconds(repeated(least, 1), 500), seconds(repeated(least, count), 100)
    return {
        "eager": seconds(lambda: least(x), 500) * 1e6,
        "jit(x + 1)": seconds(repeated(lambda y: y + 1, 1), 500) * 1e6,
        "jit(lax.cummin)": seconds(repeated(lambda y: jax.lax.cummin(y, axis=0), 1), 500) * 1e6,
        "jit": one * 1e6,
        "each in a program": (many - one) / (count - 1) * 1e6,
    }


def gpu_time(shape: tuple[int, ...], dtype: str) -> dict[str, float]:
    """Of a scan of a large array, by JAX, inside `jit`, by CuPy, and by `jax.lax`."""
    x = jnp.ones(shape, dtype)
    program = jax.jit(cuscan.cumsum)
    np.testing.assert_array_equal(
        program(x)[..., :256].astype("float32"), np.arange(1, 257) + np.zeros((*shape[:-1], 1))
    )
    peer = jax.jit(functools.partial(jax.lax.cumsum, axis=len(shape) - 1))
    times = {
        "eager": lambda: cuscan.cumsum(x), "jit": lambda: program(x), "jit(lax.cumsum)": lambda: peer(x)
    }  # fmt: skip
    measured = {name: seconds(run, 10) * 1e6 for name, run in times.items()}
    if jax.default_backend() == "gpu":
        measured["cupy"] = _cupy_time(shape, dtype)
    return measured


def _cupy_time(shape: tuple[int, ...], dtype: str) -> float:
    import cupy

    x = cupy.ones(shape, dtype)
    out = cupy.empty_like(x)
    start, end, best = cupy.cuda.Event(), cupy.cuda.Event(), float("inf")
    for _ in range(ROUNDS):
        start.record()
        for _ in range(10):
            cuscan.cumsum(x, out=out)
        end.record()
        end.synchronize()
        best = min(best, cupy.cuda.get_elapsed_time(start, end) / 10)
    return best * 1e3


# ---- a training step -------------------------------------------------------------------------------------------------


def by_cuscan(gate: Array, x: Array) -> Array:
    """The recurrence h[t] = gate[t] h[t - 1] + x[t] along axis 1."""
    return cuscan.linear_recurrence(gate, x, axis=1)


def by_associative_scan(gate: Array, x: Array) -> Array:
    """The same by pairs."""

    def combine(earlier: Array, later: Array) -> Array:
        return later[0] * earlier[0], later[0] * earlier[1] + later[1]

    return jax.lax.associative_scan(combine, (gate, x), axis=1)[1]


def by_loop(gate: Array, x: Array) -> Array:
    """The same step by step."""

    def step(h: Array, inputs: Array) -> Array:
        h = inputs[0] * h + inputs[1]
        return h, h

    start = jnp.zeros_like(x[:, 0])
    return jnp.moveaxis(jax.lax.scan(step, start, (jnp.moveaxis(gate, 1, 0), jnp.moveaxis(x, 1, 0)))[1], 0, 1)


def training_step(recurrence: Callable[[Array, Array], Array]) -> Any:
    """A gated recurrence over time between two linear maps, and one step down its gradient."""

    def loss(weights: dict[str, Array], x: Array, target: Array) -> Array:
        gate = jax.nn.sigmoid(x @ weights["gate"])
        h = recurrence(gate, (1 - gate) * (x @ weights["in"]))
        return ((h @ weights["out"] - target).astype(jnp.float32) ** 2).mean()

    def step(weights: dict[str, Array], x: Array, target: Array) -> tuple[Array, Array]:
        value, gradient = jax.value_and_grad(loss)(weights, x, target)
        return value, jax.tree.map(lambda w, g: w - (0.1 * g).astype(w.dtype), weights, gradient)

    return jax.jit(step)


def training(batch: int, time_steps: int, channels: int, dtype: str) -> dict[str, dict[str, float]]:
    """Microseconds and bytes of temporary memory of a step, by each way to make the recurrence."""
    keys = jax.random.split(jax.random.key(0), 5)
    shape = (batch, time_steps, channels)
    x, target = (jax.random.normal(key, shape, dtype) for key in keys[:2])
    names = ("gate", "in", "out")
    weights = {
        name: (jax.random.normal(key, (channels, channels)) * channels**-0.5).astype(dtype)
        for name, key in zip(names, keys[2:], strict=True)
    }
    found: dict[str, dict[str, float]] = {}
    expected = None
    for function in (by_cuscan, by_associative_scan, by_loop):
        step = training_step(function).lower(weights, x, target).compile()
        value = float(step(weights, x, target)[0])
        expected = value if expected is None else expected
        np.testing.assert_allclose(value, expected, rtol=0.02 if dtype == "bfloat16" else 1e-4)
        run = functools.partial(step, weights, x, target)
        once = seconds(run, 1)
        taken = seconds(run, 10) if once < 0.1 else once
        memory = step.memory_analysis()
        found[function.__name__] = {"us": taken * 1e6, "temporary MiB": memory.temp_size_in_bytes / 2**20}
    return found


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jax_calls", description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the numbers there")
    options = parser.parse_args()
    on_gpu = jax.default_backend() == "gpu"
    shapes = (
        [((2**28,), "float32"), ((32768, 32768), "float32"), ((8192, 4096), "bfloat16")]
        if on_gpu
        else [((256,), "float32")]
    )
    layer = (8, 4096, 2048, "bfloat16") if on_gpu else (2, 16, 4, "float32")
    facts = {"jax": jax.__version__, "device": jax.devices()[0].device_kind, "cuscan": cuscan.__version__}
    found = {
        "environment": facts,
        "command": "python -m benchmarks.jax_calls",
        "host": host_time(),
        "gpu": {f"{dtype} {shape}": gpu_time(shape, dtype) for shape, dtype in shapes},
        "training": {f"{layer[3]} {layer[:3]}": training(*layer)},
    }
    json.dump(found, sys.stdout, indent=1)
    print()
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
