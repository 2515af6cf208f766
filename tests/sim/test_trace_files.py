"""The files of traces: published days, files that are missing, and the sample that is made from random numbers."""

import gzip

import pytest
from small_traces import CODE, CONV, CONVERSATION, SMALL, check, take, write

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
        check_files(data, needed_files(kind, request))
    (data / CODE).unlink()
    (data / CONV).unlink()
    with pytest.raises(InputError, match=r"lacks .*_code.csv, .*_conv.csv; docs/how-to/traces.md says where"):
        check_files(data, needed_files("azure_llm", request))


def test_a_file_may_be_packed_or_not_whatever_its_published_name_says(data):
    packed = data / CONVERSATION
    _, before = take("mooncake", data)
    packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    check_files(data, needed_files("mooncake", ImportRequest(data)))
    assert take("mooncake", data)[1] == before


@pytest.mark.parametrize("profile", [None, "own"])
@pytest.mark.parametrize("kind", ["azure_functions", "azure_llm", "servegen"])
def test_the_sample_is_imported_as_a_trace_and_the_same_each_time(tmp_path, kind, profile):
    first, second = (write_sample(tmp_path / name) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    functions, arrivals = check(kind, tmp_path / "a", profile=profile, calls=500)
    assert len(arrivals) == 500
    assert len(functions) > 1
