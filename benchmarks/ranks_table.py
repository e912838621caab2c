"""The results of `benchmarks.ranks` as a section of the page. It needs no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import store
from benchmarks.distribution import markdown
from cuscan.bench.report import duration

FOLDER = "ranks"  # in the folder of results
SLACK, EXCHANGE_US = 1.03, 80.0  # what a sharded scan may take: so many times its traffic, and the exchange


def sections(folder: Path | None = None) -> list[str]:
    """A section for each kind of GPU that was measured."""
    paths = sorted(((folder or store.RESULTS) / FOLDER).glob("*.json"))
    return [_section(json.loads(path.read_text())) for path in paths if not path.stem.endswith(store.QUICK)]


def _section(results: dict[str, Any]) -> str:
    head = ["scan", "float32 of a rank", "its own scan", "sharded scan", "at most"]
    rows = [
        [
            case["name"],
            f"{case['elements']:,}",
            *(duration(case[key]) for key in ("single_us", "sharded_us")),
            duration(case["allowed_us"]) + ("" if case["met"] else " (over)"),
        ]
        for case in results["cases"]
    ]
    about = (
        f"**{results['ranks']} x {results['gpu']}** ({results['backend']}, torch {results['torch']}; commit "
        f"{results['commit']}). `torchrun --nproc-per-node {results['ranks']} -m benchmarks.ranks`; medians of runs "
        "that all ranks begin together. A sharded scan reads its shard twice and writes once, so it takes at least 1.5 "
        "times as long as the shard's own scan (5/3 for a recurrence). It may take "
        f"{SLACK} times that, and {EXCHANGE_US:.0f} us for the exchange."
    )
    table = markdown([head, ["---", *["---:"] * (len(head) - 1)], *rows])
    return f"## Shards on ranks\n\n{about}\n\n{table}"
