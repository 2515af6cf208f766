"""The files of traces: published days, files that are missing, and the sample that is made from random numbers."""

import gzip

import pytest
from small_traces import (
    AZURE_1000,
    CODE,
    CONV,
    CONVERSATION,
    HELIOS,
    PHILLY,
    PHILLY_LOG,
    SERVEGEN,
    SMALL,
    check,
    take,
    write,
)

from aliquot.core.errors import InputError
from aliquot.sim.importers import IMPORTERS
from aliquot.sim.importers.files import check_files, needed_files
from aliquot.sim.importers.request import ImportRequest
from aliquot.sim.importers.sample import write_sample


@pytest.fixture
def data(tmp_path):
    for name, text in SMALL.items():
        write(tmp_path / "data", name, text)
    return tmp_path / "data"


def test_the_files_of_a_day_are_read_as_they_are_published(data):
    functions, arrivals = check("azure_functions_day", data)
    assert len(functions) == 3, "a function is one of its app: two apps may have one of the same name"
    assert [arrival.tenant for arrival in arrivals].count("o-aaaaaaaa2") == 4
    with pytest.raises(InputError, match=r"anon.d02.csv: there is no such file"):
        take("azure_functions_day", data, day=2)


def test_functions_of_a_day_without_a_recorded_profile_are_left_out(data):
    functions, arrivals = check("azure_functions_day", data, profile="own")
    assert sorted(function.memory_bytes for function in functions.values()) == [512 * 2**20, 1024 * 2**20]
    assert len(arrivals) == 6


def test_all_missing_files_are_named_at_once(data):
    request = ImportRequest(data, profile="own")
    for kind in IMPORTERS:
        check_files(data, [needed_files(kind, request)])
    (data / CODE).unlink()
    (data / CONV).unlink()
    with pytest.raises(InputError, match=r"lacks .*_code.csv, .*_conv.csv; docs/how-to/traces.md says where"):
        check_files(data, [needed_files("azure_llm", request)])


def test_one_complete_set_of_files_is_enough_and_others_are_named_where_none_is(data):
    request = ImportRequest(data)
    for name in (SERVEGEN, HELIOS):
        (data / name).unlink()
    published = r"servegen_clients/\*/m-small/chunk-\*-trace.csv, .*deepseek-r1/.*, .*mm-image/chunk-\*-trace.csv"
    complaint = rf"lacks {published} \(or instead servegen_clients/servegen_client_rates.csv.gz\), helios_earth_vc/\*/"
    with pytest.raises(InputError, match=complaint):
        check_files(data, [needed_files("servegen", request), needed_files("helios", request)])


def test_servegen_is_read_from_the_files_of_each_client_as_they_are_published(data):
    whole = take("servegen", data)
    folders = {"m-small": "language", "deepseek-r1": "reason", "mm-image": "multimodal"}
    rows = [line.split(",", 2) for line in SMALL[SERVEGEN].splitlines()[1:]]
    for model, client in {(model, client) for model, client, _ in rows}:
        text = "".join(f"{rest}\n" for *of, rest in rows if of == [model, client])
        write(data, f"servegen_clients/{folders[model]}/{model}/chunk-{client}-trace.csv", text)
    (data / SERVEGEN).unlink()
    check_files(data, [needed_files("servegen", ImportRequest(data))])
    assert take("servegen", data) == whole
    write(data, "servegen_clients/language/m-large/chunk-10-trace.csv", "0,0.5,1,Gamma,0.25,8\n")
    assert take("servegen", data) == whole, "other models come on demand"
    assert list(take("servegen", data, models=("m-large",))[0]) == ["m-large-c10"]
    with pytest.raises(InputError, match="--model: there is no 'gpt'; it takes m-small, deepseek-r1"):
        needed_files("servegen", ImportRequest(data, models=("gpt",)))
    write(data, "servegen_clients/language/m-small/chunk-0-trace.csv", "0,0.5,1,Gamma,0.25\n")
    with pytest.raises(InputError, match=r"chunk-0-trace.csv:1: 5 fields; it takes 6: t_s,rate_rps,cv,dist,p1,p2"):
        take("servegen", data)


def test_helios_is_read_from_the_files_of_each_cluster_as_they_are_published(data):
    whole = take("helios", data)
    rows = [line.split(",") for line in SMALL[HELIOS].splitlines()[1:]]
    for cluster in ("vcA", "vcB"):
        lines = [f"2020-05-01 00:0{row[1]}:00,9,{row[5]}\n" for row in rows if row[0] == cluster]
        text = "time,total_job_num,running_gpujob_num\n" + "".join(lines)
        write(data, f"helios_earth_vc/{cluster}/cluster_sequence_vc.csv", text)
    (data / HELIOS).unlink()
    check_files(data, [needed_files("helios", ImportRequest(data))])
    assert take("helios", data) == whole


def test_the_published_logs_of_helios_and_philly_list_jobs_with_one_gpu(data):
    assert [tuple(arrival[:4]) for arrival in check("helios_log", data)[1]] == [
        (0, "job-vcA", "vc-vcA", 60),
        (27, "job-vcB", "vc-vcB", 10),
    ]
    with pytest.raises(InputError, match="--cluster: there is no 'Mars'; it takes Earth, Saturn, Uranus, Venus"):
        needed_files("helios_log", ImportRequest(data, cluster="Mars"))
    with pytest.raises(InputError, match=r"Venus/cluster_log.csv: there is no such file"):
        take("helios_log", data, cluster="Venus")
    jobs = [(0, "job-a", "vc-a", 100), (10, "job-b", "vc-b", 66)]
    assert [tuple(arrival[:4]) for arrival in check("philly_log", data)[1]] == jobs
    for old, new, complaint in [
        ('"2017-10-09 07:02:00"', '"noon"', "job j1 has the time 'noon'; it takes a date and time without a zone"),
        ('"vc": "b", ', "", "missing required field `vc`.*; it takes a JSON list of objects with vc, jobid"),
        ("[{", "{", "cluster_job_log: Expected `array`, got `object`; it takes a JSON list"),
    ]:
        write(data, PHILLY_LOG, SMALL[PHILLY_LOG].replace(old, new, 1))
        with pytest.raises(InputError, match=complaint):
            take("philly_log", data)


def test_files_may_keep_their_published_names(data):
    for kind, renamed, name in [
        ("philly", PHILLY, "philly_jobs/philly.csv"),
        ("azure_functions_1000", AZURE_1000, "azure_functions_2019/1000_inv.csv"),
    ]:
        before = take(kind, data)
        (data / renamed).unlink()
        write(data, name, SMALL[renamed])
        check_files(data, [needed_files(kind, ImportRequest(data))])
        assert take(kind, data) == before


def test_a_file_may_be_packed_or_not_whatever_its_published_name_says(data):
    packed = data / CONVERSATION
    _, before = take("mooncake", data)
    packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    check_files(data, [needed_files("mooncake", ImportRequest(data))])
    assert take("mooncake", data)[1] == before


@pytest.mark.parametrize("profile", [None, "own"])
@pytest.mark.parametrize("kind", ["azure_functions", "azure_llm", "servegen"])
def test_the_sample_is_imported_as_a_trace_and_the_same_each_time(tmp_path, kind, profile):
    first, second = (write_sample(tmp_path / name) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    functions, arrivals = check(kind, tmp_path / "a", profile=profile, calls=500)
    assert len(arrivals) == 500
    assert len(functions) > 1
