"""The commands that import traces, with files on disk."""

import json

import pytest
from command_line import aliquot, aliquot_process


@pytest.fixture
def llm_data(tmp_path):
    folder = tmp_path / "data" / "azure_llm_2023"
    folder.mkdir(parents=True)
    for name, hour in (("code", 18), ("conv", 19)):
        lines = [f"2023-11-16 {hour}:00:{second:02}.5000000,1000,{40 + second}" for second in range(0, 60, 4)]
        text = "\r\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines])
        (folder / f"AzureLLMInferenceTrace_{name}.csv").write_text(text)
    return tmp_path


IMPORT = ("workload", "import", "azure_llm", "--data", "data", "--arrivals", "A.csv", "--functions", "F.csv")


def test_an_imported_trace_is_simulated_at_the_load_asked_for(llm_data):
    files = []
    for hash_seed in ("0", "12345"):
        printed = aliquot_process(*IMPORT, "--load", 0.5, "--devices", 2, cwd=llm_data, PYTHONHASHSEED=hash_seed)
        files.append([(llm_data / name).read_bytes() for name in ("A.csv", "F.csv")])
    assert files[0] == files[1]
    work_s, span_s = 2 * sum(0.2 + 0.02 * (40 + second) for second in range(0, 60, 4)), 3656
    assert "wrote 30 calls of 2 flows and 2 tenants to A.csv" in printed
    assert f"natural offered load {work_s / span_s / 2:.6g} on 2 devices" in printed
    assert f"times multiplied by {work_s / span_s / 2 / 0.5:.6g}" in printed
    assert float((llm_data / "A.csv").read_text().splitlines()[-1].split(",")[0]) == pytest.approx(work_s)
    files = ("--arrivals", "A.csv", "--functions", "F.csv")
    aliquot("simulate", *files, "--devices", 2, "--policy", "fcfs", "--json", "o.json", cwd=llm_data)
    (run,) = json.loads((llm_data / "o.json").read_bytes())["runs"]
    assert (run["completed"], set(run["per_tenant"])) == (30, {"code", "conv"})


def test_an_import_lists_only_the_functions_that_are_called(llm_data):
    assert "wrote 5 calls of 1 flow and 1 tenant" in aliquot(*IMPORT, "--calls", 5, cwd=llm_data)
    assert [line.partition(",")[0] for line in (llm_data / "F.csv").read_text().splitlines()] == ["name", "code"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--load", 0), "--load: 0.0 does not fit; it takes a number above 0, at most 1e+09"),
        (("--duration-s", -1), "--duration-s: -1.0 does not fit; it takes a number above 0"),
        (("--start-s", "nan"), "--start-s: nan does not fit; it takes a number from 0 on"),
        (("--start-s", 9999), "--start-s, --duration-s: azure_llm has no call there"),
        (("--data", "nowhere"), "--data: there is no folder nowhere; it takes the one that holds a folder for each"),
        (("--profile", "timm"), "--profile: azure_llm has run times of its own, not 'timm'; it takes own"),
        (("--calls", 1, "--load", 1), "--load: all calls come at one moment"),
        (("--arrivals", "no/A.csv"), "--arrivals: there is no folder no"),
    ],
)
def test_a_wrong_import_is_refused_and_writes_nothing(llm_data, options, complaint):
    assert complaint in aliquot(*IMPORT, *options, cwd=llm_data, code=2)
    assert not list(llm_data.glob("*.csv"))


def test_an_unknown_kind_of_trace_is_refused(tmp_path):
    printed = aliquot(*IMPORT[:2], "alibaba", *IMPORT[3:], cwd=tmp_path, code=2)
    assert (
        "KIND: there is no 'alibaba'; it takes azure_functions, azure_functions_1000, azure_functions_day, " in printed
    )
