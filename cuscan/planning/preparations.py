"""What precedes a scan: launches that write flags as the scan reads them."""

from __future__ import annotations

from cuscan.planning.config import Preparation, Target
from cuscan.planning.flag_copies import in_order, plan_copies
from cuscan.planning.segment_starts import plan_starts, with_bits
from cuscan.request import ScanRequest


def prepared(request: ScanRequest, target: Target) -> ScanRequest:
    """Return the request that the scan itself is planned for: its flags are those that preparations write."""
    if request.mask is None and request.segments is None:
        return request
    return in_order(with_bits(request, target))


def preparations(request: ScanRequest, target: Target) -> list[Preparation]:
    """Return the launches that precede a scan."""
    if request.mask is None and request.segments is None:
        return []
    starts = plan_starts(request, target)
    return [*([] if starts is None else [starts]), *plan_copies(with_bits(request, target))]
