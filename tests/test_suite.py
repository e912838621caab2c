"""How much the suite holds: tests, simulated kernels, spill checks and mistakes that go missing are noticed here.

Raise the numbers freely; whoever lowers one says why.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from selection import COLLECTED

# Tests whose names begin so: how many there are at least by default, and with `--full`.
LEAST = {
    "tests/test_": (7310, 13580),
    "tests/test_simulated": (430, 3600),
    "tests/test_interval.py::test_simulated": (60, 760),
    "tests/test_nvrtc": (110, 1550),
    "tests/test_mistakes.py::test_mistake_is_noticed": (40, 241),
}


@pytest.mark.parametrize("prefix", LEAST)
def test_nothing_is_dropped(prefix: str, request: pytest.FixtureRequest) -> None:
    collected = request.config.stash[COLLECTED]
    files = {Path(name.partition("::")[0]).name for name in collected}
    if files != {path.name for path in Path(__file__).parent.glob("test_*.py")}:
        pytest.skip("some test modules are not part of this run")
    chosen = [full for name, full in collected.items() if name.startswith(prefix)]
    default, everything = LEAST[prefix]
    assert chosen.count(False) >= default
    assert len(chosen) >= everything
