"""The tuning tables: they decide speed, never a result."""

from __future__ import annotations

VECTOR_BYTES = 16  # the widest load of one thread
LINE_BYTES = 128  # of memory and caches: what stages that are filled in bulk, and tables of totals, are aligned to
LINE_WORDS = LINE_BYTES // 8  # of a workspace

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


def blocks_per_sm(family: str, nbytes: int, block: int) -> int:
    """Blocks on an SM, of a family and of elements of so many bytes at most."""
    return max(THREADS_PER_SM[family, nbytes] // block, 1)
