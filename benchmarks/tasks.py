"""Scans of everyday programs: the tasks that people scan for, in sizes that their models and data have."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator

from cuscan.bench.cases import Case

# (batch, steps, features) and (batch, features, steps) of state-space and recurrent layers.
LAYERS = ((1, 16384, 4096), (2, 65536, 768), (4, 4096, 2048), (8, 2048, 1024), (16, 1024, 768), (64, 512, 256))
HEADS = ((1, 8192, 32, 128), (4, 4096, 16, 64), (8, 2048, 12, 64), (32, 512, 8, 96))  # (batch, steps, heads, features)
IMAGES = ((1, 4096, 4096), (16, 1080, 1920), (64, 512, 512), (256, 224, 224), (4096, 28, 28))
VOCABULARIES = (32000, 50257, 128256, 151936)


def _routing() -> Iterator[Case]:
    """Positions of tokens in the buffers of their experts: sums of one-hot rows, or of masks, along the tokens."""
    for tokens, experts in itertools.product((4096, 32768, 262144), (8, 16, 60, 64, 128, 256)):
        yield Case((tokens, experts), axis=0, dtype="int32", result="int32", exclusive=True)
        yield Case((tokens, experts), axis=0, dtype="bool", result="int32")


def _sampling() -> Iterator[Case]:
    """Cumulative probabilities of a vocabulary."""
    for batch, words in itertools.product((1, 16, 256), VOCABULARIES):
        yield Case((batch, words))
        yield Case((batch, words), dtype="bfloat16", result="float32")
        yield Case((batch, words), op="logaddexp")


def _layers() -> Iterator[Case]:
    """Recurrences of state-space models, along the steps, and sums of their gates."""
    for shape, dtype in itertools.product(LAYERS, ("float32", "bfloat16")):
        batch, steps, features = shape
        yield Case(shape, axis=1, dtype=dtype, op="linear_recurrence")
        yield Case((batch, features, steps), axis=2, dtype=dtype, op="linear_recurrence")
        yield Case(shape, axis=1, dtype=dtype)


def _attention() -> Iterator[Case]:
    """Sums over the steps of each head, of forget gates of (batch, heads, steps), and of steps of a chunk."""
    for shape, dtype in itertools.product(HEADS, ("float32", "bfloat16")):
        batch, steps, heads, features = shape
        yield Case(shape, axis=1, dtype=dtype)
        yield Case((batch, heads, steps, features), axis=2, dtype=dtype)
        yield Case((batch, steps, heads), axis=1, dtype=dtype)
        yield Case((batch, heads, steps // 64, 64), axis=3, dtype=dtype)


def _returns() -> Iterator[Case]:
    """Discounted returns and advantages: recurrences from the last step back, of one episode or of several."""
    for steps, environments in ((128, 65536), (512, 16384), (1024, 4096), (4096, 1024)):
        across, along = (
            Case(shape, axis, op="linear_recurrence", decay="scalar", reverse=True)
            for shape, axis in (((steps, environments), 0), ((environments, steps), 1))
        )
        for case in (across, along):
            yield case
            yield dataclasses.replace(case, segments="reset", full_reset=True, split=f"{steps // 64} even")


def _packed() -> Iterator[Case]:
    """Packed sequences: sums, and recurrences by offsets, that begin anew with each."""
    for tokens, features in ((1 << 22, 1), (65536, 64), (65536, 256), (131072, 1024), (1 << 20, 16)):
        shape = (tokens,) if features == 1 else (tokens, features)
        for dtype, segments in itertools.product(("float32", "bfloat16"), ("offsets", "keys")):
            yield Case(shape, axis=0, dtype=dtype, segments=segments, split="256 skewed")
        yield Case(shape, axis=0, dtype="bfloat16", op="linear_recurrence", segments="offsets", split="256 skewed")


def _sparse() -> Iterator[Case]:
    """Row pointers of sparse matrices from counts, and places of what a mask keeps."""
    for items in (10**5, 10**6, 10**7, 10**8):
        yield Case((items,), dtype="int32", result="int32", include_initial=True)
        yield Case((items,), dtype="int32", include_initial=True)
        yield Case((items,), dtype="bool", result="int32", exclusive=True)
        yield Case((items,), dtype="bool")


def _images() -> Iterator[Case]:
    """Summed-area tables: sums along columns, then along rows."""
    for shape, axis in itertools.product(IMAGES, (1, 2)):
        yield Case(shape, axis=axis)
        yield Case(shape, axis=axis, dtype="uint8", result="int32")
        if axis == 1:
            yield Case((*shape, 3), axis=axis, dtype="uint8", result="int32")


def _rendering() -> Iterator[Case]:
    """Transmittance along rays: exclusive products of what samples let through; of halves, sums of their logarithms."""
    for rays, samples in ((4096, 192), (65536, 64), (65536, 192), (1 << 20, 128), (1 << 20, 48)):
        yield Case((rays, samples), op="mul", exclusive=True)
        yield Case((rays, samples), dtype="float16", exclusive=True)


def _series() -> Iterator[Case]:
    """Running extrema, with their places, moving averages, and sums that skip days, of many series."""
    for days, series in ((252, 5000), (2520, 5000), (2520, 500), (100_000, 64)):
        for shape, axis in (((days, series), 0), ((series, days), 1)):
            yield Case(shape, axis=axis, op="max")
            yield Case(shape, axis=axis, op="min with indices")
            yield Case(shape, axis=axis, op="linear_recurrence", decay="scalar")
            yield Case(shape, axis=axis, masked=True)


TASKS: dict[str, Callable[[], Iterator[Case]]] = {
    "routing": _routing,
    "sampling": _sampling,
    "layers": _layers,
    "attention": _attention,
    "returns": _returns,
    "packed": _packed,
    "sparse": _sparse,
    "images": _images,
    "rendering": _rendering,
    "series": _series,
}


def cases() -> Iterator[Case]:
    """All scans, each with its task; plain ones beside torch."""
    for task, of_task in TASKS.items():
        for case in of_task():
            is_plain = case.op != "linear_recurrence" and not case.features
            yield dataclasses.replace(case, how="sample", label=task, peers=("torch",) if is_plain else ())
