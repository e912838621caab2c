"""Find the machine that a benchmark runs on."""

from __future__ import annotations

from cuscan.bench.machine import Host, Machine


def find_machine() -> Machine:
    """Return the current GPU if CuPy finds one, otherwise the CPU."""
    try:
        import cupy

        found = bool(cupy.cuda.runtime.getDeviceCount())
    except Exception:  # a missing package, driver or device: each raises its own error
        found = False
    if not found:
        return Host()
    from cuscan.bench.gpu import Gpu

    return Gpu()
