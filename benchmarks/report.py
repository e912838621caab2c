"""Result files as pictures, as `docs/benchmarks.md`, and as what the README shows of them."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path

from benchmarks import cpu, distribution, floors, plots, ranks_table, store, tables
from benchmarks.cases import GROUPS

ROOT = Path(__file__).parent.parent
README, PAGE = ROOT / "README.md", ROOT / "docs" / "benchmarks.md"
MARKERS = {name: (f"<!-- {name}:begin -->", f"<!-- {name}:end -->") for name in ("five-lines", "headline")}

INTRODUCTION = """\
# Benchmarks

`python -m benchmarks report` writes this page and its pictures from the files in `benchmarks/results`, which
`python -m benchmarks` measures. [NOTES.md](../benchmarks/NOTES.md) has what was tried for speed.

A scan must read its input once and write its output once, so a copy of the same bytes is the limit. Every result is
checked before it is timed, and that copy (our own kernel: 16-byte loads and stores) is measured in the same run. From
sm_90 and driver 12.3 on, cuscan's launches begin while the kernel before them ends (programmatic dependent launch). The
copy and the peers are launched as usual; this is worth 1.5 to 2 us, which shows below 64 MiB. Right after other work
every run is timed by itself, between two events; back to back a time is the mean of many launches."""

FIVE_LINES = """\
```python
import torch
import cuscan

x, mask = torch.randn(512, 1000), torch.rand(512, 1000) < 0.5  # on a GPU with device="cuda"
suffix_sums = cuscan.cumsum(x, axis=1, reverse=True)  # x.flip(1).cumsum(1).flip(1){reverse}
masked_sums = cuscan.cumsum(x, axis=1, mask=mask)  # (x * mask).cumsum(1){masked}
```"""


def write() -> int:
    """Regenerate the page of benchmarks, the pictures, and the README's numbers from the result files."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
    README.write_text(filled(README.read_text()))
    return 0


def page() -> str:
    """The page of benchmarks."""
    sections = [section(path) for path in store.published()]
    sections += [*ranks_table.sections(), *filter(None, [cpu.section()])]
    return "\n\n".join([INTRODUCTION, *(sections or ["No results yet: `python -m benchmarks` writes them."])]) + "\n"


def filled(readme: str) -> str:
    """A README with the numbers of the first result file that has them, and of the samples of all GPUs."""
    readme = replaced(readme, five_lines(first_with("uses")), "five-lines")
    return replaced(readme, headline(store.published()), "headline")


def first_with(group: str) -> Path | None:
    """The first result file with records of a group; if none has any, the first file."""
    paths = store.published()
    having = (path for path in paths if any(record["group"] == group for record in store.load(path)["records"]))
    return next(having, next(iter(paths), None))


def replaced(text: str, body: str, marker: str) -> str:
    """A README's text with another body between two markers."""
    first, last = MARKERS[marker]
    head, begin, rest = text.partition(first)
    _, end, tail = rest.partition(last)
    if not (begin and end):
        raise ValueError(f"the README has no markers {first} and {last}")
    return f"{head}{first}\n\n{body}\n\n{last}{tail}"


def draw(path: Path) -> dict[str, Path]:
    """The pictures of a result file, by name."""
    results = store.load(path)
    return plots.draw(path, tables.grouped(results), results["environment"].get("gpu") or "the CPU (NumPy)")


def five_lines(path: Path | None) -> str:
    """What replaces two expressions of torch, and how many times as long these took where they were measured."""
    results = store.load(path) if path else {"environment": {}, "records": []}
    uses = [record for record in results["records"] if record["group"] == "uses"]
    ratios = {
        flag: (record, record["peers"]["torch"]["ratio"])
        for flag in ("reverse", "masked")
        for record in uses
        if record[flag] and "ratio" in record["peers"].get("torch", {})
    }
    measured = {flag: f": {times:.1f} times as fast" for flag, (_, times) in ratios.items()}
    code = FIVE_LINES.format(**{flag: measured.get(flag, "") for flag in ("reverse", "masked")})
    if not ratios:
        return code
    record, _ = next(iter(ratios.values()))
    ways = " and ".join({tables.way(each): None for each, _ in ratios.values()})
    facts = results["environment"]
    where = os.path.relpath(PAGE, README.parent)
    text = (
        f"Time of torch {facts.get('torch')} / time of cuscan on one {facts.get('gpu')}, "
        f"{record['array'].partition(' axis')[0]}, measured {ways} ([all numbers]({where}))."
    )
    return f"{code}\n\n{_wrapped(text)}"


def headline(paths: Sequence[Path]) -> str:
    """The picture of the sample that is farthest from a copy in its median, and an honest sentence for each GPU."""
    samples = {path: records for path in paths if (records := tables.grouped(store.load(path)).get("sample"))}
    if not samples:
        return cells_alone(paths[0]) if paths else ""
    farthest = min(samples, key=lambda path: distribution.median(samples[path]))
    picture = _picture(draw(farthest)["sample"], "Random scans, as a share of a copy of the same bytes", README)
    gpus = [store.load(path)["environment"].get("gpu") for path in samples]
    sentences = [distribution.headline(records, gpu) for records, gpu in zip(samples.values(), gpus, strict=True)]
    return "\n\n".join([picture, *map(_wrapped, sentences)])


def cells_alone(path: Path) -> str:
    """The picture of cells, and an honest sentence, where no sample was measured."""
    results, pictures = store.load(path), draw(path)
    groups = tables.grouped(results)
    streams = [record for group in groups.values() for record in group if record["how"] == "stream"]
    if not streams:
        return tables.left_out(results)
    farthest = min(streams, key=lambda record: float(record["value"]))
    text = (
        f"The farthest from a copy is {farthest['name']}: {floors.reached(farthest)} of copy speed. These are sizes "
        "that cuscan was tuned for; random ones are not measured yet, and some of them are far slower."
    )
    return f"{_picture(pictures['of-copy'], 'Share of copy speed of scans, by group', README)}\n\n{_wrapped(text)}"


def section(path: Path) -> str:
    """One GPU's tables and pictures."""
    results, pictures = store.load(path), draw(path)
    failed = [record for record in results["records"] if "error" in record]
    groups = tables.grouped(results)
    parts = [f"## {results['environment'].get('gpu') or 'NumPy on the CPU'}", tables.about_all(results)]
    parts += filter(None, [tables.left_out(results)])
    if failed:
        parts.append("Failed: " + "; ".join(f"{record['name']}: {record['error']}" for record in failed) + ".")
    for name, text in PICTURES.items():
        if name in pictures:
            parts.append(_picture(pictures[name], text, PAGE))
    parts.append(floors.verdict([record for records in groups.values() for record in records]))
    for group, records in groups.items():
        parts.append(f"### {GROUPS[group].title}\n\n{tables.body(group, records)}")
    return "\n\n".join(parts)


PICTURES = {
    "sample": "Random scans, as a share of copy speed",
    "of-copy": "Share of copy speed, by group",
    "over-torch": "Speed-up over torch, by group",
    "small": "Time of small scans",
}


def _wrapped(text: str) -> str:
    """A paragraph in lines that a README has."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _picture(path: Path, text: str, of: Path) -> str:
    """A picture's Markdown, on a page."""
    return f"![{text}]({Path(os.path.relpath(path, of.parent)).as_posix()})"
