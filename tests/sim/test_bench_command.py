"""The command `aliquot bench`: what is downloaded is said and asked, and progress is told without a terminal."""

import os
from contextlib import ExitStack

import pytest
from command_line import run_here

from aliquot.core.errors import InputError
from aliquot_bench.cli import bench
from aliquot_bench.environments import is_prepared, prepare
from aliquot_bench.latency import downloads


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_peers_are_chosen_by_name_and_none_leaves_all_out():
    assert sum(downloads.downloads(None).values()) > 3000
    assert downloads.downloads(()) == {}
    assert downloads.chosen_peers(()) == []
    assert {peer.folder for peer in downloads.chosen_peers(("ray",))} == {"ray"}
    assert list(downloads.downloads(("bentoml", "torch"))) == ["bentoml", "torch"]
    assert {peer.folder for peer in downloads.chosen_peers(None)} == {*downloads.INSTALLED_MB} - {"torch"}
    with pytest.raises(InputError, match="--peers: there is no 'flask'; it takes none, or some of bentoml, kserve"):
        downloads.check_names(("flask",))


def test_without_a_terminal_nothing_is_downloaded_unless_it_was_agreed_to(capsys):
    with pytest.raises(
        InputError, match=r"ray \(465 MB\); in all 0.5 GB of disk .*--yes agrees, --peers none measures"
    ):
        bench._confirm_downloads({"ray": 465}, yes=False)
    bench._confirm_downloads({"ray": 465}, yes=True)
    assert "ray (465 MB)" in capsys.readouterr().out
    bench._confirm_downloads({}, yes=False)


def test_an_environment_that_is_there_is_not_downloaded_again(tmp_path):
    folder = tmp_path / "empty"
    assert not is_prepared(folder, ())
    prepare(folder, (), lambda _: None)
    assert is_prepared(folder, ())
    assert not is_prepared(folder, ("ray",))


def test_progress_is_told_line_by_line_where_there_is_no_terminal(capsys):
    with ExitStack() as stack:
        report = bench._reporter("latency", 2, stack)
        report("preparing Ray Serve")
        report("round 1 of 2: Aliquot")
    assert "latency: 2 of 2: round 1 of 2: Aliquot" in capsys.readouterr().err


def test_all_files_that_a_benchmark_lacks_are_named(tmp_path):
    (tmp_path / "data").mkdir()
    done = run_here("bench", "fairness", "--quick", "--data", "data", cwd=tmp_path, environment=dict(os.environ))
    assert done.code == 2
    assert "dirigent500_invocations.csv.gz, function_profiles/mqfq_v100_table.csv, servegen_clients/" in done.err
