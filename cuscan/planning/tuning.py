"""Tuning tables: they affect speed, never results."""

from __future__ import annotations

VECTOR_BYTES = 16  # bytes of one thread's widest load
LINE_BYTES = 128  # bytes of a cache line: alignment of stages filled in bulk, and of tables of totals
LINE_WORDS = LINE_BYTES // 8  # workspace words per line

# Rows through shared memory: bytes that a block fills, at most.
STRETCH_BYTES = 32 * 1024

# Strips of columns: widths in bytes of the widest array, the best first; bytes of a tile of that array (but for whole
# rows of more than 32 columns), and tiles per block in shared memory, at most; the same where several walks take turns.
STRIP_BYTES = (256, 128)
STRIP_BYTES_OF_TWO = (512, 256, 128)  # for several values
STRIP_TILE_BYTES = 32 * 1024
STRIP_STAGES = 8
WALK_STAGES = 16

# Whole rows: columns (a block has two warps per 32 columns), and bytes of a tile, at most.
WHOLE_COLUMNS = 320
WHOLE_TILE_BYTES = 33 * 1024

# Threads per SM, which share its 65,536 registers: by kernel family and by the widest item size, in bytes, of values
# and results.
THREADS_PER_SM = {
    ("rows", 1): 640,
    ("rows", 2): 640,
    ("rows", 4): 640,
    ("rows", 8): 512,
    ("rows", 16): 512,
    ("staged_rows", 1): 768,
    ("staged_rows", 2): 768,
    ("staged_rows", 4): 768,
    ("staged_rows", 8): 768,
    ("staged_rows", 16): 768,
    ("cluster", 1): 512,
    ("cluster", 2): 512,
    ("cluster", 4): 512,
    ("cluster", 8): 512,
    ("cluster", 16): 512,
    ("thread_rows", 1): 640,
    ("thread_rows", 2): 768,
    ("thread_rows", 4): 768,
    ("thread_rows", 8): 768,
    ("thread_rows", 16): 768,
}

# Rows of integers and float32 that clusters take in turn: units per row, at most; threads per SM with a mask (1024:
# 0.98 of copy speed, 512: 0.79). Tiles are faster for other types.
TURN_UNITS = 4
MASKED_THREADS = 1024

# The fraction of time that blocks with strips of their own may idle, at most; beyond it, blocks share strips.
IDLE = 0.14


def idles(strips: int, slots: int) -> bool:
    """Return whether `strips` strips leave `slots` blocks idle too long: too few strips, or too uneven a division."""
    waves = -(-strips // slots)
    return strips < (1 - IDLE) * waves * slots


def blocks_per_sm(family: str, nbytes: int, block: int) -> int:
    """Return the blocks per SM for a family, a widest item size of `nbytes` bytes and `block` threads per block."""
    return max(THREADS_PER_SM[family, nbytes] // block, 1)
