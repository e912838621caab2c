"""Tiles of strips in shared memory, and the warps and stages of a block for them (strip_tile.cuh, strips.cuh)."""

from __future__ import annotations

import functools
from typing import NamedTuple

from cuscan.kept import MOST
from cuscan.order import COLUMNS, LANES
from cuscan.planning.assemble import round_up, state_bytes
from cuscan.planning.hardware import SCHEDULERS, WORD_BYTES
from cuscan.planning.staged_flags import NO_FLAGS, Flags
from cuscan.planning.tuning import LINE_BYTES, LINE_WORDS, STRIP_STAGES, VECTOR_BYTES, WALK_STAGES
from cuscan.planning.walks import FEW_COLUMNS, look_back_warps_of, looks_of_walk, span_of_walk, totals_of_walk, walks_of
from cuscan.request.kind import CallKind

MOST_WARPS = 24  # most warps of a block if several look-back warps serve a column; more lack registers
WARPS = 8  # store warps; they are the reduce warps too where a block has strips of its own
# Groups of store warps take tiles in turn where blocks share strips, if a lane has so many times fewer rounds then: all
# warps together would leave lanes idle.
GROUPS, FEWER_ROUNDS = 2, 1.2
PIECE_BYTES = 288  # most bytes of values and results of a piece of whole rows, which a thread has in registers
# Most chunks of a run. Where results lie along the axis, runs have one chunk, as lanes that write several runs of a
# column would meet in a bank. Where items begin anywhere, they have two, as threads spill registers with more.
MOST_CHUNKS = 4
# Producer warps; half of them for wide tiles in pieces, one where a tile is one stretch of memory. Where blocks share
# strips, there is a locator, too: in the place of one of several producers, if warps would otherwise lose registers.
PRODUCERS = 4
REDUCE_WARPS = 4  # reduce warps where blocks share strips
# The same where several warps load and carries are wide, so that each warp has enough registers. The scheduler with the
# most warps decides how many registers a warp gets: where REDUCE_WARPS give it no more warps, a block has REDUCE_WARPS.
FEW_REDUCE_WARPS = 2
NARROW_CARRY = 8  # most bytes of other carries
FEW_LOOKS = 4  # most looks of architectures whose warps lack registers in any case
SECTION_LEVELS = 10  # values for the blocks of a section and for what precedes it (column_chain.cuh)
LEAST_STAGES = 3  # tiles in a block's shared memory, least, where blocks share strips
HELD_PIECES = 2  # most pieces that a thread holds while it waits; none if many columns are stored in bulk
_STAGE_REST = 160  # most bytes of a stage beside its arrays
_REST = 160  # most bytes of a block beside its arrays and their alignment


class StripTile(NamedTuple):
    """A tile of strips, and whether a block has its strips alone (`own`).

    `aligned`: bytes to which rows are aligned. `alike`: whether rows of the first value that varies along the axis and
    of the result lie equally far beyond 16 bytes in the tile. `flat`: whether rows follow each other without gaps.
    """

    columns: int  # with those of the halo
    halo: int  # columns that neighbouring tiles share (tile_rows.cuh)
    rows: int
    aligned: int
    own: bool
    alike: bool
    flat: bool


class Lying(NamedTuple):
    """Arrays that lie along the axis.

    `arrays`: for each value that varies along the axis and for each result, whether it does; empty if none does.
    `aligned`: bytes to which columns of those are aligned. `back`: whether these run against the scan.
    """

    arrays: tuple[bool, ...]
    aligned: int
    back: bool


class Batches(NamedTuple):
    """Batches of tiles: the tiles of one, the most walks that take turns, and the tiles that a block loads ahead."""

    tiles: int
    most_walks: int
    ahead: int


@functools.lru_cache(MOST)
def block_of_strips(
    kind: CallKind,
    staged: tuple[int, ...],
    flags: tuple[Flags, Flags],
    lying: Lying,
    tile: StripTile,
    batches: Batches,
    room: int,
    looks: int,
    *,
    in_bulk: bool,
    back: bool,
) -> tuple[dict[str, int], int, int] | None:
    """Return a block's constants, its threads and its bytes of shared memory, or None if `room` is too little.

    `staged`: numbers of the values that vary along the axis. `looks`: most looks of a lane that travel together.
    `in_bulk`: whether results leave in bulk. `back`: whether the last row of a flat tile comes first.
    """
    columns, halo, rows, aligned, own, alike, flat = tile
    of_values, of_results = lying.arrays[: len(staged)], lying.arrays[len(staged) :]
    values, results = kind.sizes[: len(kind.values)], kind.sizes[len(kind.values) :]
    sizes = (*[values[i] for i in staged], *results)
    state, carry = state_bytes(kind)
    same = len(staged) > 0 and len(results) == 1 and kind.values[staged[0]] == kind.results[0]
    anywhere, apart = flat and aligned == 1, not flat and aligned < VECTOR_BYTES
    in_place = (
        same and not lying.arrays and (alike or not (halo or anywhere or not in_units(columns, results, aligned)))
    )
    elements, units = rows * columns, max(rows // COLUMNS.unit, 1)
    together = flat and (anywhere or aligned == VECTOR_BYTES) and not any(of_values)
    unit = aligned if apart else VECTOR_BYTES
    # Pieces of whole rows, if they fit in registers and there is one for each lane of a group of store warps.
    fits = COLUMNS.items * columns * sum(sizes) <= PIECE_BYTES
    whole = flat and in_place and fits and rows >= WARPS // GROUPS * LANES * COLUMNS.items
    most = 1 if any(of_results) else 2 if aligned == 1 else MOST_CHUNKS
    piece = _piece(columns, sizes, state, own, apart=apart, most=most)
    depth, across = (1, 1) if anywhere else (1, columns) if whole else piece
    depth = min(depth, rows // (WARPS * COLUMNS.items))  # a store warp has whole rows,
    abreast = 1
    if any(of_results) and not flat:  # or whole columns
        if not all(of_results):
            return None
        abreast = WARPS
    elif not (flat or apart) and columns * min(results) % aligned:
        return None
    if columns % (abreast * across):
        return None
    pieces = elements // (COLUMNS.items * depth * across)
    idle = GROUPS * _rounds(pieces, WARPS) >= FEWER_ROUNDS * _rounds(pieces, WARPS // GROUPS)
    groups = GROUPS if idle and in_place and abreast == 1 and not own else 1
    totals = (rows // COLUMNS.items // depth + units - 1) * columns
    scan_warps = -(-columns // LANES)
    many = together or (carry <= NARROW_CARRY and looks > FEW_LOOKS)
    reduce_warps = WARPS if own else REDUCE_WARPS if many else FEW_REDUCE_WARPS
    # Two producer warps suffice for pieces of 16 bytes, and leave registers for the other warps of 64 columns.
    producers = 1 if together else PRODUCERS // 2 if apart and flags == NO_FLAGS and scan_warps > 1 else PRODUCERS
    totals += scan_warps * LANES
    look_back_warps = (
        1
        if own
        else look_back_warps_of(
            columns, (MOST_WARPS - (1 if together else PRODUCERS) - reduce_warps - WARPS) // scan_warps - 2, carry
        )
    )
    of_warps = scan_warps * -(-columns // scan_warps)  # columns for which scan warps have lanes
    exchange, prefix = (0, 0) if own else (2 * look_back_warps * of_warps * carry, columns * carry)
    chain = SECTION_LEVELS * carry * (columns + 1 if own else 1)
    boundary = VECTOR_BYTES if own else LINE_BYTES
    behind = columns * carry + boundary if kind.returns_carry else 0
    beside = sum([array.bytes_of(rows, columns, flat=flat) for array in flags])
    arrays = _bytes_of(tuple([values[i] for i in staged]), rows, columns, unit, of_values, lying.aligned)
    arrays += anywhere * VECTOR_BYTES * len(staged)
    stage = round_up(arrays + beside + totals * state + prefix + behind + _STAGE_REST, boundary)
    separate = 0
    if not in_place:
        separate = _bytes_of(results, rows, columns, unit, of_results, lying.aligned, WARPS // abreast)
        separate += anywhere * VECTOR_BYTES * WARPS * len(results)
    rest = _REST + 2 * boundary + exchange + chain + separate
    stages = (room - rest) // stage
    if stages < (2 if own else max(batches.tiles, LEAST_STAGES)):
        return None
    walks = walks_of(min(stages, WALK_STAGES), batches.tiles, min(batches.most_walks, look_back_warps))
    of_walk = look_back_warps // walks
    stages = min(stages, WALK_STAGES if walks > 1 else STRIP_STAGES)
    has_registers = values == (state,) == (WORD_BYTES,) and _rounds(pieces, WARPS // groups) <= HELD_PIECES
    warps = producers + reduce_warps + WARPS + scan_warps * (1 if own else 2 + look_back_warps)
    if reduce_warps == FEW_REDUCE_WARPS and -warps % SCHEDULERS >= REDUCE_WARPS - reduce_warps:
        warps += REDUCE_WARPS - reduce_warps
        reduce_warps = REDUCE_WARPS
    if not own and producers > 1 and warps % SCHEDULERS == 0:
        producers -= 1  # for the locator
    elif not own:
        warps += 1
    batch_units = max(batches.tiles * rows // COLUMNS.unit, 1)
    of_lane = looks_of_walk(-(-columns // scan_warps), of_walk, looks, carry, warps, batch_units)
    constants = {
        "Columns": columns,
        "Halo": halo,
        "Rows": rows,
        "Aligned": aligned,
        "AlignedAlong": lying.aligned,
        "Steps": COLUMNS.items,
        "Depth": depth,
        "Across": across,
        "WarpsAbreast": abreast,
        "Warps": WARPS // groups,
        "Groups": groups,
        "ReduceWarps": reduce_warps,
        "Producers": producers,
        "ScanWarps": scan_warps,
        "Walks": walks,
        "LookBackWarps": of_walk,
        "Looks": of_lane,
        "Batch": batches.tiles,
        "Stages": stages,
        "Ahead": min(batches.ahead, stages - 1),
        "InPlace": int(in_place),
        "BulkStores": int(in_bulk),
        "Holds": int(not own and has_registers and (columns <= FEW_COLUMNS or not in_bulk)),
        "Flat": int(flat),
        "Back": int(back),
        "AlongBack": int(lying.back),
    }
    return constants, warps * LANES, stages * stage + rest


def _rounds(pieces: int, warps: int) -> int:
    """Return how many pieces of a tile a lane takes, if so many warps have it."""
    return -(-pieces // (warps * LANES))


def words_of_strips(constants: dict[str, int], strips: int, batches: int, carry: int) -> int:
    """Return the words of the workspace where blocks share strips: a counter of each strip, and tables of totals."""
    columns, units = constants["Columns"], max(constants["Batch"] * constants["Rows"] // COLUMNS.unit, 1)
    span = span_of_walk(-(-columns // constants["ScanWarps"]), constants["LookBackWarps"], constants["Looks"])
    of_total = strips * columns * -(-carry // WORD_BYTES)
    numbers = totals_of_walk(batches, span, units)
    return round_up(strips, LINE_WORDS) + sum([round_up(of_total * number, LINE_WORDS) for number in numbers])


def _bytes_of(
    sizes: tuple[int, ...],
    rows: int,
    columns: int,
    unit: int,
    lying: tuple[bool, ...],
    aligned_along: int,
    parts: int = 1,
) -> int:
    """Return the bytes of a tile of arrays with items of these sizes (kBytes of tile_rows.cuh).

    Those that are `lying` along the axis have `parts` tiles, for some rows each.
    """
    nbytes = 0
    for size, lies in zip(sizes, lying or (False,) * len(sizes), strict=True):
        begin = max(aligned_along if lies else unit, size)  # lines begin at multiples of so many bytes
        gap = VECTOR_BYTES if lies and begin >= VECTOR_BYTES else 2 * max(VECTOR_BYTES - begin, 0)
        lines, items = (columns, rows // parts) if lies else (rows, columns)
        nbytes += (parts if lies else 1) * round_up(lines * (items * size + gap), VECTOR_BYTES)
    return nbytes


def in_units(columns: int, results: tuple[int, ...], aligned: int) -> bool:
    """Return whether a warp has a lane for each aligned unit of a row of results, as tile_rows.cuh requires."""
    return max([columns * size // max(aligned, size) for size in results]) <= LANES


def _piece(columns: int, sizes: tuple[int, ...], state: int, own: bool, *, apart: bool, most: int) -> tuple[int, int]:
    """Return chunks and columns per piece. Long runs leave little to walk if no two lanes meet in a bank."""
    across = max(WORD_BYTES // max(sizes), 1)
    if not own and columns % across == 0 and columns // across % LANES == 0:
        return (most if len(sizes) == 2 and state <= WORD_BYTES else 2), across
    if apart:
        return 1, across
    return 1, max(min(columns & -columns, VECTOR_BYTES // max(*sizes, state // 2)), 1)
