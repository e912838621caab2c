"""What GPUs have, beside what a `Target` says of one."""

from __future__ import annotations

WARP = 32
BULK_ARCH = 90  # the first architecture with bulk copies, and with clusters
BULK_BYTES = 16  # the alignment of bulk copies
SHARED_RESERVED = 1024  # bytes of shared memory that every block takes beside its own
GPCS = 8  # a GPU has at most: all blocks of a cluster are on SMs of one
CLUSTER = 8  # blocks that any such GPU runs together
LARGE_CLUSTERS = range(90, 110)  # the architectures that run twice as many
PREFETCHING_ARCHS = range(90, 100)  # on which a look-back warp that prefetches totals spills no registers
