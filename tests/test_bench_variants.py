"""Variants of planning constants: what they change, that they are undone, and that differing bits are noticed."""

from __future__ import annotations

import sys

import pytest
from bench_cases import HOST
from plans import H200

from benchmarks import variants
from cuscan import planning
from cuscan.bench.cases import Case
from cuscan.bench.check import WrongResultError
from cuscan.bench.kernel import plan_of
from cuscan.planning import panels

LARGE, BULK = "panels.LARGE=Blocks(1, 640, 4)", "panels.BULK_BYTES = 1 << 30"
OTHER = "panels.SHARING=Blocks(1, 576, 4)"
WIDE, ROW = Case((1000, 20001), axis=0), Case((9, 700))


def test_a_variant_holds_meanwhile():
    plan, large = plan_of(WIDE, H200), panels.LARGE
    with variants.applied(f"{LARGE}; {BULK}"):
        assert panels.LARGE.threads == 640 and panels.BULK_BYTES == 1 << 30
        assert plan_of(WIDE, H200).config.block == 672
    assert panels.LARGE is large and panels.BULK_BYTES != 1 << 30
    assert plan_of(WIDE, H200) == plan


def test_a_name_without_a_module_is_one_of_the_package():
    before = planning.QUARTER
    with variants.applied("QUARTER=QUARTER + 1"):
        assert before + 1 == planning.QUARTER
    assert before == planning.QUARTER


def test_what_was_planned_is_forgotten():
    """A thread's share of a tile is kept by its arguments, and `WIDE_STATE` is none of them."""
    plan = plan_of(WIDE, H200)
    with variants.applied("panels.WIDE_STATE=0"):
        assert plan_of(WIDE, H200) != plan
    assert plan_of(WIDE, H200) == plan


def test_it_is_taken_back_after_an_error():
    large = panels.LARGE
    with pytest.raises(NameError), variants.applied(f"{LARGE}; panels.IDLE=unknown"):
        pass
    assert panels.LARGE is large


def test_scans_that_no_variant_changes_are_left_out():
    (scan,) = variants.planned([WIDE, ROW], [LARGE, BULK, "panels.IDLE=IDLE"], H200)
    assert scan.case is WIDE and list(scan.plans) == ["", LARGE, BULK]


def test_all_plans_run_and_other_bits_are_noticed(monkeypatch):
    (scan,) = variants.planned([Case((3000, 501), axis=0, dtype="uint8", op="max")], [OTHER], H200)
    times = variants.measured(scan, HOST)
    assert list(times) == ["", OTHER] and min(times.values()) > 0
    run, calls = variants.run_cuscan, []

    def wrong(case, buffers):
        def scan():
            run(case, buffers)()
            calls.append(buffers.out)
            buffers.out[0] += len(calls)

        return scan

    monkeypatch.setattr(variants, "run_cuscan", wrong)
    with pytest.raises(WrongResultError, match=r"other bits with panels\.SHARING"):
        variants.measured(scan, HOST)


def test_the_command_goes_on_after_other_bits(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["", LARGE, "--cases", "40", "--family", "panels"])
    monkeypatch.setattr(variants, "find_machine", lambda: HOST)
    measured, names = variants.measured, []

    def fails_once(scan, machine):
        names.append(scan.case.name)
        if len(names) == 1:
            raise WrongResultError(f"{scan.case.name}: other bits with {LARGE}")
        return measured(scan, machine)

    monkeypatch.setattr(variants, "measured", fails_once)
    assert variants.main() == 1
    text = capsys.readouterr().out
    assert f"wrong: {names[0]}: other bits" in text and f"of {len(names)}: {names[1]}: " in text


def test_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["", LARGE, "--cases", "40", "--family", "panels"])
    monkeypatch.setattr(variants, "find_machine", lambda: HOST)
    assert variants.main() == 0
    *_, mean, least, most = capsys.readouterr().out.splitlines()
    assert mean.startswith(f"{LARGE}: ") and "in the geometric mean of" in mean
    assert least.startswith("  least ") and most.startswith("  most ")


def test_the_scans_may_be_the_sizes_of_sweeps(monkeypatch, capsys):
    sweeps = {"n columns": ((501, 510), lambda n: {"shape": (3000, n), "axis": 0, "dtype": "uint8", "op": "max"})}
    monkeypatch.setattr(variants.cliffs, "SWEEPS", sweeps)
    monkeypatch.setattr(variants, "find_machine", lambda: HOST)
    monkeypatch.setattr(sys, "argv", ["", OTHER, "--sweep", "n columns"])
    assert variants.main() == 0
    assert "1 of 1: n columns/501: uint8 (3000, 501) axis 0, max: " in capsys.readouterr().out


def test_the_scans_may_be_those_of_tasks(monkeypatch, capsys):
    case = Case((3000, 501), axis=0, dtype="uint8", op="max")
    monkeypatch.setattr("benchmarks.tasks.TASKS", {"digits": lambda: [case]})
    monkeypatch.setattr(variants, "find_machine", lambda: HOST)
    monkeypatch.setattr(sys, "argv", ["", OTHER, "--tasks"])
    assert variants.main() == 0
    assert "1 of 1: digits: uint8 (3000, 501) axis 0, max: " in capsys.readouterr().out
