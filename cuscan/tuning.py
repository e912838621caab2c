"""The tuning tables. The orders fix the bits of every float scan: changing one changes results."""

from __future__ import annotations

from cuscan.order import Order

VECTOR_BYTES = 16  # the widest load of one thread
SECTOR = 32  # bytes that memory moves at a time
LINE_BYTES = 128  # of memory and caches: what stages that are filled in bulk, and tables of totals, are aligned to
LINE_WORDS = LINE_BYTES // 8  # of a workspace

TILE_BYTES = 32 * 1024  # of the values of a unit at most; several values an element make for fewer vectors

# A contiguous axis, by the item size of the widest value or result: `items` of that size fill one load.
CONTIGUOUS = {
    1: Order(items=16, vectors=8, warps=8),
    2: Order(items=8, vectors=8, warps=8),
    4: Order(items=4, vectors=8, warps=8),
    8: Order(items=2, vectors=8, warps=8),
    16: Order(items=1, vectors=4, warps=8),
}

# Bytes that widen to 8: a tile of 4,096 of them moves in less time than it takes to find out what precedes it (0.79 of
# copy speed; 10, 12, 14, 16 vectors: 0.89, 0.94, 0.89, 0.85).
BYTES_TO_WORDS = Order(items=2, vectors=12, warps=8)

# Any other axis: one order for all types.
COLUMNS = Order(items=8, vectors=1, warps=1, paired=True)

# Dense rows: bytes of shared memory that a block fills, bytes of the rows that a thread takes side by side at most.
STRETCH_BYTES = 32 * 1024
SIDE_BYTES = 512

# Strips of columns: their widths in bytes of the widest array, the best first; bytes of a tile of it, and tiles that a
# block holds in shared memory, at most.
STRIP_BYTES = (256, 128)
STRIP_BYTES_OF_TWO = (512, 256, 128)  # of several values
STRIP_TILE_BYTES = 32 * 1024
STRIP_STAGES = 8

# Whole rows: columns, of which a block has two warps for each 32, and bytes of a tile at most.
WHOLE_COLUMNS = range(16, 321)
WHOLE_TILE_BYTES = 33 * 1024

# Threads of an SM, which share its 65,536 registers: by kernel family and the item size of the widest of values and
# results.
THREADS_PER_SM = {
    ("rows", 1): 640,
    ("rows", 2): 640,
    ("rows", 4): 640,
    ("rows", 8): 512,
    ("rows", 16): 512,
    ("cluster", 1): 512,
    ("cluster", 2): 512,
    ("cluster", 4): 512,
    ("cluster", 8): 512,
    ("cluster", 16): 512,
    ("thread_rows", 1): 768,
    ("thread_rows", 2): 768,
    ("thread_rows", 4): 768,
    ("thread_rows", 8): 768,
    ("thread_rows", 16): 768,
    ("warp_rows", 1): 640,
    ("warp_rows", 2): 640,
    ("warp_rows", 4): 640,
    ("warp_rows", 8): 512,
    ("warp_rows", 16): 512,
}

# Of rows that clusters take in turn: the units, at most, of integers and float32 (True: 0.98 of copy speed, and 0.94 in
# tiles) and of others (two units 0.97, three 0.92); the threads of an SM where there is a mask (1024: 0.98, 512: 0.79).
TURN_UNITS = {True: 4, False: 2}
MASKED_THREADS = 1024

# The share of time that blocks with strips of their own may idle at most: where the strips do not divide evenly among
# the blocks, blocks share them.
IDLE = 0.1


def idles(strips: int, slots: int) -> bool:
    """Whether blocks with strips of their own idle too long: too few for `slots` blocks, or too uneven."""
    waves = -(-strips // slots)
    return strips < (1 - IDLE) * waves * slots
