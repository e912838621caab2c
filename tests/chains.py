"""A simulation of look_back.cuh alone: the fold over the totals of a chain, on intervals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import simulator
from interval import INTERVAL, SHORT, Example, ShortExample
from simulator import HEADERS, DeviceCode, Simulation, prepare

from cuscan.order import GROUP, SECTION


def alone(simulation: Simulation, units: int, words: int) -> Simulation:
    """A launch of look_back_only.cuh, made from the plan of a scan of the same types."""
    plan = simulation.plan
    levels = (units > 1) + (units > GROUP) + (units > SECTION)
    config = replace(
        plan.config, family="look_back_only", grid=True, levels=levels, block=32, shared_bytes=0, constants=()
    )
    rows = (2 + config.batch_dims) * (1 + len(plan.offsets))  # sizes and strides of the axis, columns and batch axes
    spans = rows + 3  # beside rows: units and words
    end = spans + 2 * (len(config.values) + len(config.results) + 2)  # with those of mask and segments
    geometry = (*plan.geometry[: rows + 1], units, words, *plan.geometry[spans:end])
    return replace(simulation, plan=plan._replace(config=config, geometry=geometry, workspace_words=words, grid=64))


CHAINS_ALONE = DeviceCode(
    {**HEADERS, "kernels/look_back_only.cuh": (simulator.HERE / "look_back_only.cuh").read_text()}
)


# A walk takes four groups at a time if aggregate and carry have 16 bytes (intervals), eight for short intervals.
AHEAD = {"interval": (INTERVAL, Example), "short": (SHORT, ShortExample)}


def look_back(kind: str, rows: int, units: int, initial: bool) -> tuple[Simulation, np.ndarray[Any, Any]]:
    op, example_of = AHEAD[kind]
    scan = example_of((rows, units), initial=initial)
    simulation = prepare(scan.value, op, initial=scan.initial)
    words = rows * units * scan.value.itemsize // 4
    return alone(simulation, units, words), scan.scanned(exclusive=True)
