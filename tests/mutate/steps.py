"""Which tests are run for a mutant, and in which order: first those that are cheap and likely to notice it."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

# Tests that run on the CPU and that no mutant can affect.
_APART = ("gpu", "bench", "readme", "packaging", "cli", "mutate", "suite", "typing")
# Tests that plant mistakes of their own; a mutant in the same line would interfere.
_PLANTING = re.compile(r"::test_(mistake_is_noticed|every_mistake_has_one_place)\b")
_GOOD_CODE = "test_good_code_passes"
_FIRST, _MOST = 24, 160  # numbers of tests in a step, if they compile
_PLAIN = 400  # tests in a step, if they compile nothing


class Suite:
    """The tests of a tree: those that --full runs, and which of them the default run includes.

    `cases` are the cases that notice planted mistakes, by header.
    """

    def __init__(
        self,
        modules: Mapping[str, str],
        tests: Iterable[str],
        default: Iterable[str],
        cases: Mapping[str, Sequence[str]],
    ) -> None:
        self._texts = {f"tests/{name}": text for name, text in modules.items() if not name[5:].startswith(_APART)}
        self._tests = [test for test in tests if self._module(test) in self._texts and not _PLANTING.search(test)]
        self._default, self._cases = set(default), cases

    def steps(self, file: str) -> list[list[str]]:
        """Steps, which run one after the other: tests that run together. Each test is in one step."""
        listed = self._of_device_code(file) if file.endswith(".cuh") else self._of_host_code(file)
        done: set[str] = set()
        steps = []
        for step in listed:
            new = [test for test in step if test not in done]
            done |= set(new)
            steps += [new] if new else []
        return steps

    def _of_device_code(self, file: str) -> Iterator[list[str]]:
        """Tests that simulate kernels: cases of planted mistakes, default tests, tests with a like name, the rest."""
        simulating = [test for test in self._tests if self._compiles(test, "simulator")]
        header = file.removeprefix("cuscan/cuda/")
        stem = Path(file).stem.replace("_", "[_-]")
        named = [test for test in simulating if re.search(rf"\b{stem}\b|_{stem}\b", test)]
        quick = [test for test in simulating if test in self._default]
        cases = [f"{_GOOD_CODE}[{case}]" for case in self._cases.get(header, ())]
        yield [test for test in simulating if test.endswith(tuple(cases))] if cases else []
        yield from _chunks([test for test in quick if test in named])
        yield from _chunks(_shuffled(quick))
        yield from _chunks([test for test in simulating if _GOOD_CODE in test])
        yield from _chunks(_shuffled(named))
        yield from _chunks(_shuffled(simulating))

    def _of_host_code(self, file: str) -> Iterator[list[str]]:
        """Modules named after the file, for launch code those with a fake GPU, those that compile nothing, the rest."""
        stem = Path(file).stem
        yield from self._of_modules([name for name in self._texts if f"/test_{stem}" in name], default=True)
        compiling = [name for name in self._texts if self._compiles(name, "simulator", "nvrtc")]
        if "/backends/" in file:
            yield from self._of_modules([name for name in compiling if "(gpu" in self._texts[name]], default=True)
        quick = [name for name in self._texts if name not in compiling]
        quick.sort(key=lambda name: self._distance(name, stem))
        yield from self._of_modules(quick, default=True)
        yield from self._of_modules(quick, default=False)
        rest = [test for test in self._tests if self._module(test) in compiling]
        yield from _chunks(_shuffled([test for test in rest if test in self._default]))
        yield from _chunks(_shuffled([test for test in rest if "nvrtc" not in test]))
        yield from _chunks(_shuffled(rest))

    def _of_modules(self, modules: Iterable[str], *, default: bool) -> Iterator[list[str]]:
        step: list[str] = []
        for name in modules:
            step += [test for test in self._tests if self._module(test) == name and (test in self._default) == default]
            if len(step) >= _PLAIN:
                yield step
                step = []
        yield step

    def _distance(self, module: str, stem: str) -> tuple[bool, bool, int]:
        text = self._texts[module]
        imports = re.search(rf"from cuscan(\.\w+)*\.{stem} import|from cuscan(\.\w+)* import .*\b{stem}\b", text)
        return f"test_{stem}" not in module, not imports, len(text)

    def _compiles(self, test: str, *words: str) -> bool:
        text = self._texts[self._module(test)]
        return any(re.search(rf"\b{word}", text) for word in words)

    @staticmethod
    def _module(test: str) -> str:
        return test.partition("::")[0]


def _shuffled(tests: list[str]) -> list[str]:
    return random.Random(len(tests)).sample(tests, len(tests))


def _chunks(tests: Sequence[str]) -> Iterator[list[str]]:
    """Ever larger chunks of tests, since a process takes seconds to start."""
    size = _FIRST
    while tests:
        yield list(tests[:size])
        tests, size = tests[size:], min(2 * size, _MOST)
