"""The command `aliquot bench`: what is downloaded is said and asked, and progress is told without a terminal."""

import os
import re
from contextlib import ExitStack

import pytest
from command_line import run_here
from pages import DocumentPage

from aliquot.core.errors import InputError
from aliquot_bench.benches import BENCHES
from aliquot_bench.cli import bench
from aliquot_bench.environments import is_prepared, prepare
from aliquot_bench.latency import downloads
from aliquot_bench.result import BenchResult, ResultTable, at_most


class TwoTables:
    """A benchmark with two tables, one of which assumes something of its own."""

    assumed = "D = 1"
    needs_data = False
    steps = 0

    def run(self, _):
        tables = [ResultTable("One", ["a"], [[1]]), ResultTable("Two", ["b"], [[2]], "D = 4")]
        return BenchResult("sdk", True, [at_most("goal", 1, 2)], tables, self.assumed)


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


@pytest.mark.parametrize(
    ("name", "files"),
    {
        "eviction": ("block_traces/lirs_sprite.txt.gz", "block_traces/arc_P3.lis.xz"),
        "fairness": ("dirigent500_invocations.csv.gz", "function_profiles/mqfq_v100_table.csv", "servegen_clients/"),
        "forecast": ("dirigent500_invocations.csv.gz", "dirigent500_memory.csv.gz", "1000_inv.csv", "1000_mem.csv"),
        "prediction": ("ipredict_FIFA.dat.gz", "vllm_edits.csv.gz", "ml_file_opens.csv.gz", "self_strace_file_access"),
        "slo": ("nexus_titanx/caffe_vgg16_1.txt", "dirigent500_invocations.csv.gz", "mqfq_v100_table.csv"),
    }.items(),
)
def test_all_files_that_a_benchmark_lacks_are_named(tmp_path, name, files):
    (tmp_path / "data").mkdir()
    done = run_here("bench", name, "--data", "data", cwd=tmp_path, environment=dict(os.environ))
    assert done.code == 2
    assert [file for file in files if file not in done.err] == []


def test_a_line_above_every_table_says_what_is_assumed(tmp_path, monkeypatch):
    monkeypatch.setitem(BENCHES, "sdk", lambda _: TwoTables())
    done = run_here("bench", "sdk", "--markdown", "o.md", cwd=tmp_path, environment=dict(os.environ))
    above = [line.strip() for line in done.out.splitlines() if re.match("assumed|One|Two|Goals", line)]
    assert above == ["assumed: D = 1", "One", "assumed: D = 4", "Two", "assumed: D = 1", "Goals"]
    written = (tmp_path / "o.md").read_text()
    assert written.count("assumed: D = 1") == 2, "one table and the goals"
    assert written.count("assumed: D = 4") == 1


def test_the_section_on_citing_runs_as_printed(tmp_path, monkeypatch):
    section = DocumentPage("references.md").section("To cite Aliquot")
    monkeypatch.setitem(BENCHES, "fairness", lambda _: TwoTables())
    told, measured = (run_here(*words, cwd=tmp_path, environment=dict(os.environ)).out for words in section.commands())
    number = told.split()[-1]
    assert f"version = {{{number}}}" in section.blocks("bibtex")[0]
    last = measured.splitlines()[-2]  # before the file that was written
    pattern = re.escape(section.blocks("text")[0].strip())
    pattern = pattern.replace(
        re.escape("2 cores, Python 3.11.7, Linux 6.1.0, 2026-01-31"), r"\d+ cores?, Python .*, \d{4}-.*"
    )
    assert re.fullmatch(pattern, last), last
    assert (tmp_path / "fairness.json").is_file()


@pytest.mark.parametrize("name", BENCHES)
def test_every_benchmark_says_what_it_assumes(name):
    made = BENCHES[name]
    assert re.search(r"\bD\b|measured|recorded|slots for all", made.assumed), made.assumed
