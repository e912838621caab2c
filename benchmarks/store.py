"""Result files: one for each GPU, updated cell by cell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuscan.bench.measure import Record
from cuscan.bench.report import write_json

RESULTS = Path(__file__).parent / "results"
QUICK = "-quick"


def path_for(facts: dict[str, Any], *, quick: bool, folder: Path | None = None) -> Path:
    """The result file of a machine; `folder` is where it is, if not where the README's are."""
    slug = re.sub(r"[^a-z0-9]+", "-", str(facts["gpu"] or "cpu").lower()).strip("-")
    return (folder or RESULTS) / f"{slug}{QUICK if quick else ''}.json"


def load(path: Path) -> dict[str, Any]:
    """A result file; an empty one where there is none."""
    if not path.exists():
        return {"environment": {}, "command": "", "records": []}
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


Cell = tuple[str, str]  # group and name


def merge(
    path: Path,
    facts: dict[str, Any],
    command: str,
    records: list[Record],
    keeps: Callable[[Record], bool] = lambda record: True,
) -> None:
    """Put records into a result file; one of the same name and group is replaced, others stay where `keeps` says so."""
    kept = {(record["group"], record["name"]): record for record in load(path)["records"] if keeps(record)}
    kept.update({(record["group"], record["name"]): record for record in records})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, facts, command, list(kept.values()))


def measured(path: Path, code: str) -> dict[Cell, Record]:
    """The records without an error that a result file holds from the same device and planning code."""
    records = load(path)["records"]
    return {(r["group"], r["name"]): r for r in records if r.get("code") == code and "error" not in r}


def published() -> list[Path]:
    """The result files that the README shows."""
    return sorted(path for path in RESULTS.glob("*.json") if not path.stem.endswith(QUICK))
