"""Hardware constants that `Target` does not hold."""

from __future__ import annotations

WARP = 32  # threads
REGISTERS = 65536  # of a multiprocessor
WORD_BYTES = 4  # of a bank of shared memory
SCHEDULERS = 4  # of a multiprocessor, which divide its registers and the warps of a block
BULK_ARCH = 90  # first architecture with bulk copies and clusters
BULK_BYTES = 16  # alignment of bulk copies
SHARED_RESERVED = 1024  # bytes of shared memory per block, beyond its own
GPCS = 8  # GPCs of a GPU, at most; all blocks of a cluster run on one
CLUSTER = 8  # blocks per cluster on every GPU with clusters
LARGE_CLUSTERS = range(90, 110)  # architectures with clusters of twice as many blocks
PREFETCHING_ARCHS = range(90, 100)  # architectures on which a prefetching look-back warp spills no registers
