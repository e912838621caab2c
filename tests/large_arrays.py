"""A fixture for modules that import it: small arrays have the derivatives of large ones. Importing it imports torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cuscan.autograd import torch_recording
from cuscan.backends import repeats


@pytest.fixture(autouse=True)
def results_are_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Derivatives of arrays of any size read results instead of scanning again."""
    forget()
    monkeypatch.setattr(torch_recording, "RESULT_BYTES", 0)
    yield
    forget()


def forget() -> None:
    """Forget what similar calls share."""
    for table in (torch_recording._recordings, torch_recording._tapes, repeats.launches):
        table.clear()
