"""The command line: `cuscan bench`, `cuscan warm`, `cuscan cache` and `cuscan info`."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import cuscan
from cuscan.bench import environment
from cuscan.bench.cases import Case, five_uses
from cuscan.bench.kernel import request_of
from cuscan.bench.machine import Machine
from cuscan.bench.measure import Record, largest_fitting, measure
from cuscan.bench.providers import PEERS
from cuscan.compile import cache
from cuscan.dtypes import DTYPES
from cuscan.operators import OPERATORS
from cuscan.request.call import SEGMENTS
from cuscan.words import Call

GPU_SHAPE = (32768, 32768)
GPU_BYTES = 9 << 30  # of the largest built-in case: 4 GiB in, 4 GiB out, 1 GiB of mask
HOST_SHAPE = (512, 2048)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    options = _parser().parse_args(arguments)
    if options.command == "info":
        return info()
    if options.command == "cache":
        return show_cache(options)
    if options.command == "warm":
        return warm(options)
    try:
        return bench(options)
    except KeyboardInterrupt:
        print("cuscan: stopped", file=sys.stderr)
        return 130


# ---- options ---------------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        """One line, without the usage text."""
        self.exit(2, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="cuscan", description="Prefix scans on the GPU.")
    parser.add_argument("--version", action="version", version=f"cuscan {cuscan.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="devices, versions, cache folder, and what is missing")
    kernels = commands.add_parser("cache", help="the folder of compiled kernels: show, limit or clear it")
    kernels.add_argument("--limit", type=size, metavar="SIZE", help="remove what was not used for longest, as 500M")
    kernels.add_argument("--clear", action="store_const", dest="limit", const=0, help="remove all kernels")
    _add_warm(commands.add_parser("warm", help="compile the kernels of a kind of call ahead of time"))
    one = commands.add_parser("bench", help="time scans beside a copy of the same bytes and beside peers")
    one.add_argument("--shape", type=shape, help="of the array, as 32768x32768 or 2^28; without it: a built-in set")
    one.add_argument("--axis", type=int, default=-1)
    one.add_argument("--dtype", choices=DTYPES, default="float32", metavar="DTYPE", help=", ".join(DTYPES))
    one.add_argument("--result", choices=DTYPES, metavar="DTYPE", help="dtype of the result")
    one.add_argument("--op", choices=OPERATORS, default="add")
    for flag in ("reverse", "exclusive", "mask"):
        one.add_argument(f"--{flag}", action="store_true")
    one.add_argument("--against", type=peers, metavar="NAMES", help=f"of {','.join(PEERS)}, or none")
    one.add_argument("--json", type=output_file, metavar="FILE", help="write the records")
    one.add_argument("--plot", type=plot_file, metavar="FILE", help="draw them, as .png, .svg or .pdf")
    return parser


def _add_warm(one: argparse.ArgumentParser) -> None:
    one.add_argument("--op", choices=[*OPERATORS, "linear_recurrence"], default="add")
    one.add_argument("--dtype", choices=DTYPES, default="float32", metavar="DTYPE", help=", ".join(DTYPES))
    one.add_argument("--arch", type=int, help="90 for sm_90; without it: that of this machine's GPU")
    one.add_argument("--shape", type=shape, action="append", help="only for this shape (several: several times)")
    one.add_argument("--axis", type=int, default=-1, help="of these shapes")
    one.add_argument("--general", action="store_true", help="only the general kernels, a few for all shapes")
    one.add_argument("--result", choices=DTYPES, metavar="DTYPE", help="dtype of the result")
    one.add_argument("--segments", choices=SEGMENTS)
    one.add_argument("--segment-dtype", choices=DTYPES, metavar="DTYPE", help="of keys or offsets")
    one.add_argument("--ties", choices=("first", "last"), default="first")
    for field in dataclasses.fields(Call):
        if field.default is False:
            one.add_argument(f"--{field.name.replace('_', '-')}", action="store_true")


def shape(text: str) -> tuple[int, ...]:
    """A shape as users write it: sizes joined by x, each a number or a power."""
    try:
        sizes = [int(base) ** int(power or 1) for base, _, power in (part.partition("^") for part in text.split("x"))]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; write 32768x32768 or 2^28")
    return tuple(sizes)


def size(text: str) -> int:
    """A number of bytes as users write it: 2048, 500M, 2G."""
    number, unit = (text[:-1], text[-1]) if text[-1:].isalpha() else (text, "")
    if not number.isdecimal() or unit.upper() not in _UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 2048, 500M or 2G")
    return int(number) * _UNITS[unit.upper()]


def peers(text: str) -> list[str]:
    """A list of peers, joined by commas."""
    names = [] if text == "none" else text.split(",")
    for name in names:
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f"{name!r} is no peer; known are {', '.join(PEERS)}")
    return names


def output_file(text: str) -> Path:
    """A file that can be written, found out before the measurement."""
    path = Path(text)
    if not os.access(path.parent, os.W_OK) or path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written")
    return path


def plot_file(text: str) -> Path:
    """The same, with the name of a picture."""
    if not text.endswith((".png", ".svg", ".pdf")):
        raise argparse.ArgumentTypeError(f"{text!r} does not end in .png, .svg or .pdf")
    return output_file(text)


class WrongCall(Exception):
    """Options that do not fit together; the message is one line."""


# ---- bench -----------------------------------------------------------------------------------------------------------


def bench(options: argparse.Namespace) -> int:
    """Measure, print a table, write the files that were asked for."""
    needed = ["rich", "matplotlib"] if options.plot else ["rich"]
    for package in needed:
        if importlib.util.find_spec(package) is None:
            return fail(f"bench needs the package {package}: pip install 'cuscan[bench]'")
    from cuscan.bench.find import find_machine

    machine = find_machine()
    if machine.target is None:
        print("No CUDA GPU found (see `cuscan info`): measuring the NumPy backend on the CPU.")
    against = _peers(machine) if options.against is None else options.against
    try:
        cases = _cases(options, machine)
    except WrongCall as wrong:
        return fail(str(wrong))
    records = _measure(cases, machine, against)
    return _report(options, records, against)


def fail(message: str) -> int:
    """One line on stderr; the exit status of a wrong call."""
    print(f"cuscan bench: {message}", file=sys.stderr)
    return 2


def _peers(machine: Machine) -> list[str]:
    """The peers to compare with where none are named."""
    if machine.target is None:
        return ["numpy"]
    return [name for name in ("torch", "cupy") if importlib.util.find_spec(name)]


def _cases(options: argparse.Namespace, machine: Machine) -> list[Case]:
    if options.shape is None:
        given = [flag for flag in ("reverse", "exclusive", "mask", "result") if getattr(options, flag)]
        if given or options.axis != -1 or options.dtype != "float32" or options.op != "add":
            raise WrongCall("the built-in set takes no options of a scan; give --shape too")
        return five_uses(largest_fitting(GPU_SHAPE, GPU_BYTES, machine) if machine.target else HOST_SHAPE)
    if not -len(options.shape) <= options.axis < len(options.shape):
        raise WrongCall(f"--axis {options.axis} is out of range for a shape of {len(options.shape)} dimensions")
    one = Case(
        options.shape,
        axis=options.axis,
        dtype=options.dtype,
        op=options.op,
        reverse=options.reverse,
        exclusive=options.exclusive,
        masked=options.mask,
        result=options.result,
    )
    try:
        request_of(one)
    except cuscan.ScanError as error:
        raise WrongCall(f"no such scan: {error}") from None
    return [one]


def _measure(cases: list[Case], machine: Machine, against: list[str]) -> list[Record]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    records = []
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(cases))
        for case in cases:
            for step, record in measure(case, machine, against):
                progress.update(task, description=f"{case.name}: {step}")
                if step == "done":
                    records.append(record)
            progress.advance(task)
    return records


def _report(options: argparse.Namespace, records: list[Record], against: list[str]) -> int:
    from rich.console import Console

    from cuscan.bench import report

    facts = environment.environment()
    where = facts["gpu"] or "NumPy on the CPU"
    wide = 79 + 12 * len(against)
    console = Console() if sys.stdout.isatty() else Console(width=max(120, wide))
    console.print(report.table(records, against, f"cuscan {cuscan.__version__} on {where}"))
    console.print(
        "of copy: time of a copy of the same bytes / time of the scan, both right after other work. "
        "Peers: their time / ours.",
        style="dim",
    )
    for line in report.failures(records):
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    if options.json:
        report.write_json(options.json, facts, command(options), records)
    if options.plot:
        report.plot(options.plot, records, against, f"cuscan {cuscan.__version__} on {where}")
    return 1 if any("error" in record for record in records) else 0


def command(options: argparse.Namespace) -> str:
    """The command that repeats a measurement."""
    words = ["cuscan", "bench"]
    if options.shape is not None:
        words += ["--shape", "x".join(map(str, options.shape)), "--axis", str(options.axis), "--dtype", options.dtype]
        words += ["--op", options.op]
        words += ["--result", options.result] if options.result else []
        words += [f"--{flag}" for flag in ("reverse", "exclusive", "mask") if getattr(options, flag)]
    words += ["--against", ",".join(options.against) or "none"] if options.against is not None else []
    return shlex.join(words)


# ---- kernels ---------------------------------------------------------------------------------------------------------


def show_cache(options: argparse.Namespace) -> int:
    """Print what is in the folder of compiled kernels, after removing what is asked for."""
    if options.limit is not None:
        print(f"removed: {_kernels(cache.shrink(options.limit))}")
    print(f"{cache.cache_dir()}: {_kernels(cache.entries())}")
    return 0


def warm(options: argparse.Namespace) -> int:
    """Compile kernels, with a progress bar where rich is installed."""
    words = {field.name: getattr(options, field.name) for field in dataclasses.fields(Call)}
    shapes = options.shape and [(one, options.axis) for one in options.shape]
    try:
        with _progress() as progress:
            print(cuscan.warm(**words, shapes=shapes, arch=options.arch, general=options.general, progress=progress))
    except cuscan.ScanError as error:
        print(f"cuscan warm: {error}", file=sys.stderr)
        return 1
    return 0


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """What shows how many kernels of how many are there."""
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield lambda done, count: print(f"{done} of {count} kernels", file=sys.stderr)
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("kernels", total=None)
        yield lambda done, count: bar.update(task, completed=done, total=count)


def _kernels(entries: Sequence[cache.Entry]) -> str:
    count, nbytes = len(entries), sum(entry.nbytes for entry in entries)
    return f"{count} kernel{'s' * (count != 1)}, {nbytes / 2**20:.1f} MiB"


# ---- info ------------------------------------------------------------------------------------------------------------


def info() -> int:
    """Print what cuscan runs on, and what is missing."""
    facts = [
        ("cuscan", cuscan.__version__),
        *((f"GPU {i}", _device(device)) for i, device in enumerate(environment.devices())),
        ("driver", environment.driver()),
        ("CuPy", environment.cupy_version()),
        ("NVRTC", environment.nvrtc()),
        ("torch", environment.version("torch")),
        ("JAX", environment.version("jax")),
        ("NumPy", environment.version("numpy")),
        ("kernel cache", environment.cache_folder()),
    ]
    for name, value in facts:
        print(f"{name:<13} {value or 'not found'}")
    for name, remedy in environment.missing():
        print(f"missing: {name}: {remedy}")
    return 0


def _device(device: dict[str, object]) -> str:
    memory = int(str(device["memory"])) / 2**30
    return f"{device['name']}, {device['arch']}, {device['sms']} SMs, {memory:.0f} GiB"
