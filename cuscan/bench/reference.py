"""Reference scans: along the last axis of arrays of states, in steps that read and write whole arrays."""

from __future__ import annotations

from collections.abc import Callable

from cuscan.bench.calls import State

PIECE = 16  # elements scanned by doubling distances; longer pieces would be read too often

Combine = Callable[[State, State], State]


def scan_from(combine: Combine, state: State, carry: State) -> State:
    """Compute an inclusive scan along the last axis that continues from `carry`, in place."""
    first = combine(carry, tuple(part[..., 0] for part in state))
    for part, value in zip(state, first, strict=True):
        part[..., 0] = value
    return scan_along(combine, state)


def scan_along(combine: Combine, state: State) -> State:
    """Scan along the last axis in place: scan pieces, scan their totals in the same way, and combine both."""
    pieces, rest = divmod(state[0].shape[-1], PIECE)
    if pieces < 2:
        return doubling(combine, state)
    whole = tuple(part[..., : pieces * PIECE].reshape(*part.shape[:-1], pieces, PIECE) for part in state)
    totals = scan_along(combine, tuple(part[..., -1].copy() for part in doubling(combine, whole)))
    _put(combine, tuple(total[..., :-1, None] for total in totals), tuple(part[..., 1:, :] for part in whole))
    if rest:
        tail = doubling(combine, tuple(part[..., -rest:] for part in state))
        _put(combine, tuple(total[..., -1:] for total in totals), tail)
    return state


def _put(combine: Combine, earlier: State, later: State) -> None:
    """Combine what precedes with every element, in place."""
    for part, combined in zip(later, combine(earlier, later), strict=True):
        part[...] = combined


def doubling(combine: Combine, state: State) -> State:
    """Scan along the last axis in steps of doubling distance (Hillis & Steele 1986), in place."""
    distance = 1
    while distance < state[0].shape[-1]:
        earlier = tuple(part[..., :-distance] for part in state)
        _put(combine, earlier, tuple(part[..., distance:] for part in state))
        distance *= 2
    return state
