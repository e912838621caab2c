"""Run calls on arrays under derivatives or transforms through their framework, and all others on a backend."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from cuscan import backends
from cuscan.request.call import Flags, Operands


def run(flags: Flags, operands: Operands, initial: Any) -> tuple[Any, ...]:
    """Run one call; see `backends.run`."""
    for view in operands.views if operands.outs is None else operands.views + operands.outs:
        if view.traced:
            name = view.kind.library.name
            return (_runners.get(name) or _load(name))(flags, operands, initial)
    if initial is not None and _is_traced(initial):  # beside NumPy arrays, which JAX then converts
        return (_runners.get("jax") or _load("jax"))(flags, operands, initial)
    return backends.run(flags, operands, initial)


def _is_traced(initial: Any) -> bool:
    """Return whether a number is a tracer of JAX, without a value yet."""
    jax = sys.modules.get("jax")
    numbers = initial if isinstance(initial, tuple) else (initial,)
    return jax is not None and any(isinstance(number, jax.core.Tracer) for number in numbers)


_runners: dict[str, Callable[..., tuple[Any, ...]]] = {}  # by library, loaded on first use


def _load(library: str) -> Callable[..., tuple[Any, ...]]:
    run: Callable[..., tuple[Any, ...]]
    if library == "jax":
        from cuscan.autograd.jax import run
    else:
        from cuscan.autograd.torch import run
    _runners[library] = run
    return run
