"""Selection of the cases that pytest runs by default: few, but every facet is covered; `pytest --full` runs all.

A facet is any property of a case that code may handle wrongly: a kernel family with a flag, two flags, a dtype, a
layout. A new case with a facet that no other case has is in the default run at once.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import pytest

COLLECTED = pytest.StashKey[dict[str, bool]]()  # all tests; whether only `--full` runs a test


def covering(
    cases: Iterable[Any],
    facets: Callable[..., Iterable[Hashable]],
    everything: Callable[..., Iterable[Hashable]] | None = None,
) -> list[Any]:
    """The cases as parameters of a test; cases that the default run does not need are marked `full`.

    A case is one parameter with a name, or a tuple of parameters, which `facets` gets one by one. The choice is greedy:
    the next case is always the one with the most facets that no other covers yet. `everything` gives the facets that
    `pytest --full` must cover; cases that neither run needs are left out. Without it all cases are included.
    """
    listed = list(cases)
    default = _chosen(listed, facets)
    full = set(range(len(listed))) if everything is None else default | _chosen(listed, everything)
    return [_parameter(listed[i], () if i in default else (pytest.mark.full,)) for i in sorted(full)]


def _chosen(cases: Sequence[Any], facets: Callable[..., Iterable[Hashable]]) -> set[int]:
    return _greedy([set(facets(*case) if isinstance(case, tuple) else facets(case)) for case in cases])


def _greedy(facets: Sequence[set[Hashable]]) -> set[int]:
    kept: set[int] = set()
    covered: set[Hashable] = set()
    heap = [(-len(own), i) for i, own in enumerate(facets)]
    heapq.heapify(heap)
    while heap:
        bound, i = heapq.heappop(heap)
        new = len(facets[i] - covered)
        if new < -bound:  # fewer than at the last count
            if new:
                heapq.heappush(heap, (-new, i))
            continue
        if new == 0:
            break
        kept.add(i)
        covered |= facets[i]
    return kept


def _parameter(case: Any, marks: Iterable[Any]) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    name = getattr(case, "name", None)
    return pytest.param(*values, marks=marks, id=name)


def each(*parameters: Hashable) -> Iterable[Hashable]:
    """Facets of a case that cover every value of each parameter."""
    return enumerate(parameters)


def pairs(*parameters: Hashable) -> Iterable[Hashable]:
    """Facets of a case that cover every two values of any two parameters."""
    return itertools.combinations(enumerate(parameters), 2)


def of_flags(family: str, flags: Mapping[Any, Hashable]) -> Iterable[Hashable]:
    """Facets that cover each flag of a family, on and off, and any two flags together, in any family."""
    yield from ((family, *flag) for flag in flags.items())
    yield from itertools.combinations(flags.items(), 2)


def facets_of(case: Any, families: Iterable[str]) -> Iterable[Hashable]:
    """The facets of a simulated call (`Case` of test_simulated.py and of feature_cases.py)."""
    family, flags, others = _features(case, families)
    yield from of_flags(family, flags)
    yield from others


def pairs_of(case: Any, families: Iterable[str]) -> Iterable[Hashable]:
    """Facets that cover any two features of a simulated call; its shape; the rest of its name after the family."""
    family, flags, others = _features(case, families)
    yield from itertools.combinations([("family", family), *flags.items(), *others], 2)
    yield from (("shape", case.shape), ("called", case.name.removeprefix(family)))


def _features(case: Any, families: Iterable[str]) -> tuple[str, dict[str, Hashable], list[Hashable]]:
    family = max((name for name in families if case.name.startswith(f"{name}-")), key=len, default=None)
    call = case.call
    flags = {name: bool(call.get(name)) for name in ("reverse", "exclusive", "include_initial", "skipna")}
    flags |= {
        "masked": bool(case.masked),
        "initial": getattr(case, "initial", None) is not None or call.get("initial") is not None,
        "segments": getattr(case, "segments", "").partition("-")[0],
        "return_last": "return_last" in call,
        "carry": getattr(case, "carry", ""),
    }
    names = ("dtype", "op", "layout", "segments", "arch", "masked")
    others = [(name, str(getattr(case, name))) for name in names if hasattr(case, name)]
    others += [("in place", case.in_place), ("tuning", case.units)]
    if "dtype" in call:
        others.append(("conversion", getattr(case, "dtype", None), call["dtype"]))
    return family or case.name.split("-")[0], flags, others
