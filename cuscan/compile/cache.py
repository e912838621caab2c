"""The folder of compiled kernels. Processes, users and machines may share it, and it may be read-only."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SUFFIX = ".cubin"
_ROOT = 0  # whose files everybody trusts


class Entry(NamedTuple):
    """A kernel in the folder: its file, its size, and when it was used last, in seconds."""

    path: Path
    nbytes: int
    used: float


def cache_dir() -> Path:
    """The folder of compiled kernels: $CUSCAN_CACHE_DIR, else cuscan in the user's cache folder."""
    chosen = os.environ.get("CUSCAN_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cuscan"


def is_trusted(facts: os.stat_result) -> bool:
    """Whether a file is this user's or root's: another user's code is never run."""
    return not hasattr(os, "getuid") or facts.st_uid in (os.getuid(), _ROOT)


def find(pattern: str) -> Path | None:
    """The last file by name that is trusted, of those in the folder whose names match."""
    with contextlib.suppress(OSError, ValueError):
        return max(path for path in cache_dir().glob(pattern) if is_trusted(path.stat()))
    return None


def read(path: Path) -> bytes | None:
    """What is in a file that is trusted; None where there is none."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        if not is_trusted(os.fstat(file.fileno())):
            return None
        code = file.read()
        with contextlib.suppress(OSError):  # read-only
            os.utime(path)
        return code
    return None


def write(path: Path, content: bytes) -> None:
    """Write so that no other process ever sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            file.write(content)
            file.close()
            os.chmod(file.name, 0o644)  # the folder may be shared
            os.replace(file.name, path)
        except OSError:  # no room is left
            with contextlib.suppress(OSError):
                os.unlink(file.name)
            raise


def entries() -> list[Entry]:
    """The kernels in the folder, those that were used last first."""
    return sorted(_entries(), key=lambda entry: -entry.used)


def _entries() -> Iterator[Entry]:
    for path in cache_dir().glob(f"*{SUFFIX}"):
        with contextlib.suppress(OSError):  # another process removes it
            facts = path.stat()
            yield Entry(path, facts.st_size, facts.st_mtime)


def shrink(most: int) -> list[Entry]:
    """Remove kernels until those that are left have so many bytes at most; the ones not used for longest go first."""
    removed, kept = [], 0
    for entry in entries():
        kept += entry.nbytes
        if kept > most:
            with contextlib.suppress(OSError):
                entry.path.unlink()
                removed.append(entry)
    return removed
