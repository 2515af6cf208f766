"""Two distributions: `aliquot` carries the product, `aliquot-bench` the benchmarks and the demonstration."""

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import typer

import aliquot
import aliquot_bench
from aliquot.cli import plugins
from aliquot.cli.app import app
from aliquot.cli.commands import COMMANDS
from aliquot.core.errors import InputError
from aliquot.sdk.app import App

PRODUCT = Path(aliquot.__file__).parent
BENCH = Path(aliquot_bench.__file__).parent


def packages_in(root):
    """The packages that setuptools finds below a source folder: the folders with an `__init__.py`."""
    return {".".join(path.parent.relative_to(root).parts) for path in root.rglob("__init__.py")}


def test_the_wheel_of_aliquot_carries_only_the_product():
    packages = packages_in(PRODUCT.parent)
    assert {name.partition(".")[0] for name in packages} == {"aliquot"}
    assert not {"aliquot.bench", "aliquot.demo", "aliquot.testing.origin"} & packages
    assert {name for name in packages if name.count(".") == 1} == {
        "aliquot.cli",
        "aliquot.cluster",
        "aliquot.core",
        "aliquot.expressions",
        "aliquot.kernels",
        "aliquot.learn",
        "aliquot.live",
        "aliquot.policies",
        "aliquot.runtime",
        "aliquot.sdk",
        "aliquot.sim",
        "aliquot.storage",
        "aliquot.testing",
        "aliquot.web",
        "aliquot.whatif",
        "aliquot.workflow",
    }


def test_the_wheel_of_aliquot_bench_carries_every_benchmark_and_the_demo():
    packages = packages_in(BENCH.parent)
    assert {name.partition(".")[0] for name in packages} == {"aliquot_bench"}
    assert {"aliquot_bench.cli", "aliquot_bench.demo", "aliquot_bench.latency", "aliquot_bench.origin"} <= packages
    folders = {path.parent for path in BENCH.rglob("*.py")}
    assert {BENCH.parent.joinpath(*name.split(".")) for name in packages} == folders


def test_no_module_of_the_product_imports_the_benchmarks():
    """Imports inside of functions count, too."""
    an_import = re.compile(r"^\s*(from|import) .*\baliquot_bench\b", re.MULTILINE)
    assert not [path for path in PRODUCT.rglob("*.py") if an_import.search(path.read_text(encoding="utf-8"))]
    assert an_import.search((BENCH / "benches.py").read_text(encoding="utf-8"))


def test_the_help_lists_the_commands_of_an_installed_package():
    commands = typer.main.get_command(app)
    names = commands.list_commands(None)
    assert set(plugins.BENCH_COMMANDS) == entry_points(group=plugins.ENTRY_POINTS).names
    assert set(plugins.BENCH_COMMANDS) <= set(names)
    assert len(names) == len(set(names))
    for name in plugins.BENCH_COMMANDS:
        assert commands.get_command(None, name).name == name


def test_without_the_package_its_commands_say_how_to_install_it(monkeypatch):
    monkeypatch.setattr(plugins, "ENTRY_POINTS", "aliquot.no_commands")
    commands = typer.main.get_command(app)
    assert "bench" not in commands.list_commands(None)
    assert commands.get_command(None, "no-such-command") is None
    for name in plugins.BENCH_COMMANDS:
        with pytest.raises(InputError, match=f"`aliquot {name}` is in the package aliquot-bench.*pip install"):
            commands.get_command(None, name)


def test_every_command_in_the_table_can_be_used():
    found = typer.main.get_command(app)
    for name in COMMANDS:
        assert found.get_command(None, name).name == name


def test_an_own_command_imports_neither_entry_points_nor_other_commands_nor_benchmarks():
    script = (
        "import atexit, gc, sys, importlib.metadata as m\n"
        "atexit.register(lambda: print('frozen', gc.get_freeze_count()))\n"
        "m.entry_points = lambda **_: sys.exit('entry points were read')\n"
        "sys.argv = ['aliquot', 'token', '--help']\n"
        "from aliquot.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "assert 'aliquot.cli.token' in sys.modules\n"
        "assert not {'aliquot_bench', 'aliquot.cli.simulate', 'aliquot.sim', 'aliquot.live'} & sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    frozen = int(done.stdout.split()[-1])
    assert frozen > 0, "at its end, the interpreter searches for garbage"


def test_the_server_imports_nothing_that_only_its_workers_need():
    script = "import sys, aliquot.live.server; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    only_workers = ("aliquot.workflow.drawing", "aliquot.live.expressions.process", "aliquot.sdk")
    assert [name for name in modules if name.startswith(only_workers)] == []


def test_processes_of_the_server_start_without_the_sdk():
    script = "import sys, aliquot.live.node.network.process; assert 'aliquot.sdk' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
    assert aliquot.App is App
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = aliquot.nothing


def test_commands_import_the_modules_of_the_sdk_that_they_use():
    script = "import sys, aliquot.cli.up; print(*(name for name in sys.modules if name.startswith('aliquot.sdk.')))"
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert set(found) <= {"aliquot.sdk.errors", "aliquot.sdk.running", "aliquot.sdk.units"}
    assert [name for name in aliquot.__all__ if not hasattr(aliquot, name)] == []


def test_the_citation_has_the_version():
    citation = (PRODUCT.parents[1] / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {aliquot.__version__}\n" in citation
