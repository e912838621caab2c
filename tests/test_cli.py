"""The command line, in process on the CPU, and once from end to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import cuscan
from cuscan import cli, warming
from cuscan.bench import environment, find
from cuscan.bench.machine import Host
from cuscan.bench.providers import PEERS
from cuscan.planning.config import Target
from cuscan.words import Call

ONE = ["bench", "--shape", "40x30"]


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure on the CPU, even if the machine has a GPU."""
    pytest.importorskip("rich", reason="rich is not installed")
    monkeypatch.setattr(find, "find_machine", Host)
    monkeypatch.setattr(environment, "devices", list)


@pytest.mark.usefixtures("cpu")
class TestBench:
    @pytest.mark.full
    def test_built_in_set(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        pytest.importorskip("matplotlib", reason="matplotlib is not installed")
        results, picture = tmp_path / "results.json", tmp_path / "plot.png"
        assert cli.main(["bench", "--json", str(results), "--plot", str(picture)]) == 0
        text = capsys.readouterr().out
        assert text.startswith("No CUDA GPU found")
        for word in ("add reverse", "add exclusive", "add masked", "axis 0", "of copy", "numpy"):
            assert word in text
        records = json.loads(results.read_text())["records"]
        assert len(records) == 5
        assert all(record["error_of_tolerance"] <= 1 and record["of_copy"] > 0 for record in records)
        assert picture.read_bytes().startswith(b"\x89PNG")

    def test_one_case(self, tmp_path: Path) -> None:
        results = tmp_path / "results.json"
        options = ["--axis", "0", "--dtype", "int16", "--result", "int32", "--op", "mul", "--mask", "--exclusive"]
        assert cli.main([*ONE, *options, "--reverse", "--against", "none", "--json", str(results)]) == 0
        loaded = json.loads(results.read_text())
        (record,) = loaded["records"]
        assert record["shape"] == [40, 30]
        assert (record["axis"], record["dtype"], record["result"], record["op"]) == (0, "int16", "int32", "mul")
        assert record["reverse"] and record["exclusive"] and record["masked"]
        assert record["bytes"] == 40 * 30 * (2 + 1 + 4)
        assert record["peers"] == {}
        assert {"median_us", "min_us", "max_us", "p25_us", "p75_us"} <= record["time"].keys()
        assert loaded["environment"]["cuscan"] == cuscan.__version__
        assert loaded["command"].startswith("cuscan bench --shape 40x30 --axis 0 --dtype int16 --op mul")

    def test_the_noted_command_repeats_the_case(self, tmp_path: Path) -> None:
        first, second = tmp_path / "1.json", tmp_path / "2.json"
        cli.main([*ONE, "--reverse", "--dtype", "float64", "--against", "none", "--json", str(first)])
        command = json.loads(first.read_text())["command"]
        cli.main([*command.split()[1:], "--json", str(second)])
        one, two = (json.loads(path.read_text())["records"][0]["name"] for path in (first, second))
        assert one == two

    def test_logaddexp(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main([*ONE, "--op", "logaddexp", "--mask", "--reverse", "--against", "none"]) == 0
        assert "logaddexp reverse masked" in capsys.readouterr().out

    def test_peer_without_such_a_scan(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main([*ONE, "--op", "max", "--mask", "--against", "numpy"]) == 0
        text = capsys.readouterr().out
        assert "failed" not in text
        assert "numpy, float32 (40, 30) axis 1, max masked: numpy has no identity for max" in text

    def test_failing_peer_is_reported(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setitem(PEERS, "numpy", lambda case, buffers: lambda: 1 // 0)
        assert cli.main([*ONE, "--against", "numpy"]) == 0
        text = capsys.readouterr().out
        assert "failed" in text
        assert "ZeroDivisionError" in text

    def test_torch_is_a_peer(self, capsys: pytest.CaptureFixture[str]) -> None:
        pytest.importorskip("torch", reason="torch is not installed")
        assert cli.main([*ONE, "--reverse", "--against", "torch"]) == 0
        assert "failed" not in capsys.readouterr().out

    def test_failing_case_ends_with_1(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("cuscan.bench.measure.run_cuscan", lambda case, buffers: lambda: buffers.out.fill(1))
        assert cli.main([*ONE, "--against", "none"]) == 1
        assert "WrongResultError" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--reverse"], "cuscan bench: the built-in set takes no options of a scan; give --shape too"),
            (["--shape", "4", "--axis", "1"], "cuscan bench: --axis 1 is out of range"),
            (["--shape", "4", "--op", "logaddexp", "--dtype", "int8"], "cuscan bench: no such scan: op='logaddexp' is"),
            (["--shape", "4", "--result", "int8"], "cuscan bench: no such scan: out has dtype int8 and x float32"),
            (["--shape", "4", "--op", "xor"], "cuscan bench: no such scan: op='xor' is defined on bool"),
        ],
    )
    def test_options_that_do_not_fit(
        self, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(["bench", *options]) == 2
        captured = capsys.readouterr()
        assert captured.err.startswith(message)
        assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "--shape", "4x"], "'4x' is no shape"),
        (["bench", "--shape", "0"], "'0' is no shape"),
        (["bench", "--dtype", "float99"], "invalid choice: 'float99'"),
        (["bench", "--against", "torch,nobody"], "'nobody' is no peer"),
        (["bench", "--json", "/no/such/folder/x.json"], "'/no/such/folder/x.json' cannot be written"),
        (["bench", "--plot", "x.xyz"], "'x.xyz' does not end in .png, .svg or .pdf"),
        (["bench", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["nonsense"], "invalid choice: 'nonsense'"),
        ([], "required: command"),
    ],
)
def test_wrong_options_get_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    text = capsys.readouterr().err
    assert message in text
    assert text.count("\n") == 1


def test_shapes() -> None:
    assert cli.shape("32768x32768") == (32768, 32768)
    assert cli.shape("2^28") == (2**28,)
    assert cli.shape("8x2^12x1") == (8, 4096, 1)


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info"]) == 0
    text = capsys.readouterr().out
    for word in ("cuscan", "driver", "CuPy", "NVRTC", "NumPy", "kernel cache"):
        assert word in text


def test_info_names_the_missing_package(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(environment, "cupy_version", lambda: None)
    assert cli.main(["info"]) == 0
    assert "missing: CuPy: pip install 'cuscan[cuda12]'" in capsys.readouterr().out


def test_module_without_a_gpu() -> None:
    pytest.importorskip("rich", reason="rich is not installed")
    words = [sys.executable, "-m", "cuscan", *ONE, "--against", "numpy"]
    root, variables = Path(cuscan.__file__).parent.parent, {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(words, cwd=root, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("No CUDA GPU found")


@pytest.mark.gpu
def test_bench_on_the_gpu(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    against = ["--against", "cupy"]
    assert cli.main(["bench", "--shape", "512x4096", "--mask", *against, "--json", str(results)]) == 0
    loaded = json.loads(results.read_text())
    assert loaded["environment"]["gpu"]
    (record,) = loaded["records"]
    assert record["family"] in ("rows", "cluster", "tiles", "panels", "strips")
    assert "time" in record["peers"]["cupy"]


class TestWarm:
    WORDS = ("warm", "--op", "max", "--dtype", "int16", "--shape", "9x7", "--axis", "0", "--arch", "90")

    @pytest.fixture(autouse=True)
    def compiled(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """The calls that compile kernels: configurations, architecture and progress function."""
        calls: list[Any] = []

        def compile_all(wanted: Iterable[Any], arch: int, progress: Callable[[int, int], None]) -> warming.Warmed:
            calls.append((set(wanted), arch, progress))
            progress(0, 2)
            progress(2, 2)
            return warming.Warmed(2, 1, 3 << 20)

        monkeypatch.setattr(warming, "compile_all", compile_all)
        return calls

    def test_kernels_are_those_of_the_shape(self, compiled: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(self.WORDS) == 0
        [(wanted, arch, _)] = compiled
        shape = [((9, 7), 0)]
        assert wanted == set(warming.kernels(Call("max", "int16"), Target(90, 132), shape)) and arch == 90
        assert cli.main([*self.WORDS, "--general"]) == 0
        assert compiled[1][0] == set(warming.kernels(Call("max", "int16"), Target(90, 132), shape, general=True))
        assert capsys.readouterr().out == 2 * "2 kernels of 3.0 MiB, 1 of them compiled now\n"

    def test_a_bar_shows_how_many_are_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rich = pytest.importorskip("rich.progress", reason="rich is not installed")
        update, steps = rich.Progress.update, []
        monkeypatch.setattr(
            rich.Progress, "update", lambda bar, task, **to: steps.append(to) or update(bar, task, **to)
        )
        assert cli.main(self.WORDS) == 0
        assert steps == [{"completed": done, "total": 2} for done in (0, 2)]

    def test_without_rich_lines_show_it(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setitem(sys.modules, "rich.console", None)
        assert cli.main(self.WORDS) == 0
        assert capsys.readouterr().err == "0 of 2 kernels\n2 of 2 kernels\n"

    def test_what_is_wrong_is_one_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["warm", "--op", "and", "--arch", "90", "--shape", "9"]) == 1
        [line] = capsys.readouterr().err.split("\n")[-2:-1]
        assert line.startswith("cuscan warm: ") and "op='and' is defined on" in line

    def test_without_a_gpu_an_architecture_is_needed(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setitem(sys.modules, "cuscan.backends.cuda", None)
        assert cli.main(["warm", "--shape", "9"]) == 1
        assert "there is no GPU to ask for its architecture: pass arch=, 90 for sm_90" in capsys.readouterr().err


class TestCache:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("CUSCAN_CACHE_DIR", str(tmp_path))
        for i in range(3):
            path = tmp_path / f"{i}.cubin"
            path.write_bytes(bytes(2**20))
            os.utime(path, (i, i))
        return tmp_path

    def test_it_is_shown(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["cache"]) == 0
        assert capsys.readouterr().out == f"{folder}: 3 kernels, 3.0 MiB\n"

    def test_it_is_limited_and_cleared(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["cache", "--limit", "1M"]) == 0
        assert [path.name for path in folder.iterdir()] == ["2.cubin"]
        assert cli.main(["cache", "--clear"]) == 0
        assert not list(folder.iterdir())
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "removed: 2 kernels, 2.0 MiB" and lines[3] == f"{folder}: 0 kernels, 0.0 MiB"

    @pytest.mark.parametrize("size", ["", "-1", "1T", "many", "M"])
    def test_a_wrong_size(self, size: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            cli.main(["cache", f"--limit={size}"])
        assert "is no size; write 2048, 500M or 2G" in capsys.readouterr().err
