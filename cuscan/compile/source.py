"""Generate CUDA C++ for a plan's configuration: includes, a named Config struct, one entry point."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from pathlib import Path

from cuscan.planning.config import AnyConfig, Config, CopyConfig, Operand, StartsConfig

CUDA_DIR = Path(__file__).resolve().parent.parent / "cuda"

_TEMPLATE = """\
// cuscan {entry}; headers {digest}
#include "kernels/{family}.cuh"
{functor_source}
namespace cuscan {{
struct Config {{
    using Op = {op};
    using CarryOp = {carry_op};
    using Index = {index};
    using Values = Operands<{values}>;
    using Results = Operands<{results}>;
    using Mask = {mask};
    using SegmentOperand = {segment_operand};
    using RowInitial = {row_initial};
    using Last = {last};
    using CarryIn = Operands<{carry_in}>;
    using CarryOut = Operands<{carry_out}>;
    static constexpr Segments kSegments = Segments::k{segments};
    static constexpr bool kSegmentsHaveInitial = {segments_have_initial};
    static constexpr bool kShowsSegmentStarts = {shows_segment_starts};
    static constexpr bool kIndexed = {indexed};
    static constexpr bool kReverse = {reverse};
    static constexpr bool kExclusive = {exclusive};
    static constexpr bool kIncludesInitial = {includes_initial};
    static constexpr bool kSkipsNan = {skips_nan};
    static constexpr bool kHasInitial = {has_initial};
    static constexpr bool kGrid = {grid};
    static constexpr int kLevels = {levels};
    static constexpr int kBatchDims = {batch_dims};
    static constexpr int kItems = {items};
    static constexpr int kStateBytes = {state_bytes};
    static constexpr int kCarryBytes = {carry_bytes};
    static constexpr int kSharedBytes = {shared_bytes};
    static constexpr int kCluster = {cluster};
{constants}
}};
}}  // namespace cuscan

{qualifiers}
{entry}({arguments}, cuscan::Workspace* workspace,
        cuscan::Elements<cuscan::Config>::Initial initial,
        CUSCAN_CONSTANT_ARGUMENT cuscan::{geometry}<cuscan::Config> geometry) {{
    cuscan::{family}<cuscan::Config>({{{{{names}}}}}, workspace, initial, geometry);
}}
"""

_BEFORE_TEMPLATE = """\
// cuscan {entry}; headers {digest}
#include "kernels/{family}.cuh"

CUSCAN_KERNEL({block}, {blocks_per_sm})
{entry}(const char* given, {written}* written, CUSCAN_CONSTANT_ARGUMENT cuscan::{sizes} sizes) {{
    cuscan::{function}(given, written, sizes);
}}
"""


def entry_name(config: AnyConfig) -> str:
    """Return the kernel's name, as profilers show it."""
    return f"cuscan_{config.family}"


@functools.cache
def headers() -> dict[str, str]:
    """Return the text of all device headers, by the names that `#include` uses."""
    return {path.relative_to(CUDA_DIR).as_posix(): path.read_text() for path in sorted(CUDA_DIR.rglob("*.cuh"))}


@functools.cache
def headers_digest() -> str:
    """Return a digest of all device headers; every source contains it, so that edits invalidate caches."""
    digest = hashlib.sha256()
    for name, text in headers().items():
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()[:16]


def make_source(config: AnyConfig) -> str:
    """Return the translation unit for one configuration."""
    entry, digest = entry_name(config), headers_digest()
    if not isinstance(config, Config):
        return _BEFORE_TEMPLATE.format(
            entry=entry,
            digest=digest,
            family=config.family,
            block=config.block,
            blocks_per_sm=config.blocks_per_sm,
            **types_before(config),
            function=_function(config),
        )
    fields = _literals(config)
    del fields["constants"]
    constants = "\n".join(f"    static constexpr int k{name} = {value};" for name, value in config.constants)
    arrays = [(f"array{i}", operand) for i, operand in enumerate(config.operands)]
    bounds = f"{config.block}, {config.blocks_per_sm}"
    return _TEMPLATE.format(
        qualifiers=f"CUSCAN_CLUSTER_KERNEL({config.cluster}, {bounds})"
        if config.cluster > 1
        else f"CUSCAN_KERNEL({bounds})",
        entry=entry,
        digest=digest,
        geometry=config.geometry,
        constants=constants,
        arguments=", ".join(_argument(name, operand) for name, operand in arrays if operand.present),
        names=", ".join(_address(name, operand) for name, operand in arrays),
        **fields,
    )


def types_before(config: StartsConfig | CopyConfig) -> dict[str, str]:
    """Return the C++ types of what a launch before a scan writes, and of the sizes that it takes."""
    if isinstance(config, StartsConfig):
        return {"written": "cuscan::uint32", "sizes": "Segmentation"}
    return {"written": "char", "sizes": "FlagCopy"}


def _function(config: StartsConfig | CopyConfig) -> str:
    if isinstance(config, CopyConfig):
        return f"copy_flags<{config.block}, {config.patches}>"
    if config.given == "offsets":
        return f"starts_of_offsets<cuscan::{config.item}, {config.warps}, {config.chunk}, {_literal(config.carries)}>"
    return f"starts_of_items<cuscan::{config.item}, {config.warps}, {config.chunk}, {_literal(config.given == 'keys')}>"


def _argument(name: str, operand: Operand) -> str:
    return f"CUSCAN_CONSTANT_ARGUMENT cuscan::{operand.type} {name}" if operand.by_value else f"char* {name}"


def _address(name: str, operand: Operand) -> str:
    return "nullptr" if not operand.present else f"(char*)&{name}" if operand.by_value else name


def _literals(config: AnyConfig) -> dict[str, str]:
    return {field.name: _literal(getattr(config, field.name)) for field in dataclasses.fields(config)}


def _literal(value: object) -> str:
    if isinstance(value, tuple) and not isinstance(value, Operand):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
