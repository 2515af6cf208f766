"""Tests of the input files: accepted content, and refusals of wrong content."""

import gzip

import pytest

from aliquot.core.errors import InputError
from aliquot.core.model import DeviceSpec, Times
from aliquot.sim.contention import parse_curve
from aliquot.sim.devices import DeviceKind, parse_devices, read_device_file, with_cpu
from aliquot.sim.traces import FunctionsFile, TraceFile

FUNCTIONS = "name,run_s,cold_s,memory_mib\nf,1,2,100\ng,0.5,1,50\n"


def functions(tmp_path, text=FUNCTIONS):
    path = tmp_path / "F.csv"
    path.write_text(text)
    return FunctionsFile(path)


def trace(tmp_path, text, name="A.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return TraceFile(path, functions(tmp_path).functions)


def test_an_arrivals_file_with_all_its_columns(tmp_path):
    header = "time_s,function,tenant,run_s,deadline_s,cost_limit,session,late,key"
    text = f"{header}\n0,f,ann,2.5,10,3,s,drop,a\n1.5,g,,,,,,,\n"
    first, second = trace(tmp_path, text)
    assert tuple(first) == (0, "f", "ann", 2.5, 10, 3, "s", (), "drop", "a")
    assert tuple(second) == (1.5, "g", "default", None, None, None, None, (), "run", None)
    assert isinstance(first.time_s, int)


def test_a_gzipped_file_is_read_like_a_plain_one(tmp_path):
    text = "time_s,function\n0,f\n1,g\n"
    for name in ("A.csv.gz", "A.csv"):  # the suffix does not matter
        assert trace(tmp_path, gzip.compress(text.encode()), name).overview() == trace(tmp_path, text).overview()


def test_a_functions_file_with_times_for_other_kinds(tmp_path):
    text = "name,run_s,cold_s,memory_mib,load_s,share,weight,run_s@cpu,cold_s@cpu\n"
    text += "f,1,2,1.5,0.5,0.25,3,9,1\ng,1,2,0,,,,,\n"
    listed = functions(tmp_path, text).functions
    assert listed["f"].times == Times(1, 2, 0.5)
    assert listed["f"].times_by_kind == {"cpu": Times(9, 1, 0.5)}
    assert (listed["f"].share, listed["f"].weight, listed["f"].memory_bytes) == (0.25, 3, 3 * 2**19)
    assert (listed["g"].times, listed["g"].share, listed["g"].weight) == (Times(1, 2, None), None, 1)
    assert listed["g"].times_on(DeviceSpec("gpu-1")).load_s == 0
    assert listed["g"].times_by_kind == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", r"A.csv:1: is empty, where a header is expected: it takes time_s,function"),
        ("time_s\n0\n", r"A.csv:1: the column function is missing from the header 'time_s'"),
        ("time_s,function,color\n0,f,red\n", r"A.csv:1: the column 'color' is not known; it takes"),
        ("time_s,function,time_s\n0,f,0\n", r"A.csv:1: the column time_s is listed twice"),
        ("time_s,function\n0,f\n-1,f\n", r"A.csv:3: time_s is '-1'; it takes seconds since the start, 0 or more"),
        ("time_s,function\nnan,f\n", r"A.csv:2: time_s is 'nan'"),
        ("time_s,function\ninf,f\n", r"A.csv:2: time_s is 'inf'"),
        ("time_s,function\n1e308,f\n", r"A.csv:2: time_s is '1e308'"),
        ("time_s,function\n1_0,f\n", r"A.csv:2: time_s is '1_0'"),
        ("time_s,function\n-1e-12,f\n", r"A.csv:2: time_s is '-1e-12'"),
        ("time_s,function\nsoon,f\n", r"A.csv:2: time_s is 'soon'"),
        ("time_s,function\n2,f\n1,f\n", r"A.csv:3: time_s is 1 after 2 before it; it takes ascending times"),
        ("time_s,function\n0,h\n", r"A.csv:2: function 'h' is not known; it takes one of the functions file's names"),
        ("time_s,function\n0,\n", r"A.csv:2: function is empty"),
        ("time_s,function\n0,f,1\n", r"A.csv:2: 3 fields; it takes 2: time_s,function"),
        ("time_s,function,run_s\n0,f,-2\n", r"A.csv:2: run_s is '-2'; it takes seconds, 0 or more"),
        ("time_s,function,deadline_s\n0,f,0\n", r"A.csv:2: deadline_s is '0'; it takes seconds after arrival"),
        ('time_s,function\n0,"f\n', r"A.csv:\d: cannot be read from here on: unexpected end of data"),
        (
            b"time_s,function\n" + b"0,f\n" * 3000 + b"0,\xff\n",
            r"A.csv:3002: cannot be read from here on: it is not UTF-8 text",
        ),
    ],
)
def test_wrong_arrivals_are_refused_with_file_line_and_what_is_expected(tmp_path, text, complaint):
    with pytest.raises(InputError, match=complaint):
        trace(tmp_path, text).overview()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name,run_s,cold_s\nf,1,2\n", r"F.csv:1: the column memory_mib is missing"),
        ("name,run_s,cold_s,memory_mib\n", r"F.csv:2: there are no functions"),
        (FUNCTIONS + "f,1,1,1\n", r"F.csv:4: function 'f' is listed twice"),
        ("name,run_s,cold_s,memory_mib\nf,,2,1\n", r"F.csv:2: run_s is ''; it takes seconds, 0 or more"),
        ("name,run_s,cold_s,memory_mib,share\nf,1,2,1,1.5\n", r"F.csv:2: share is 1.5; it takes a part of a device"),
        (
            "name,run_s,cold_s,memory_mib,weight\nf,1,2,1,0\n",
            r"F.csv:2: weight is 0; it takes a number from 1e-06 to 1e\+06",
        ),
        ("name,run_s,cold_s,memory_mib,cold_s@cpu\nf,1,2,1,4\n", r"F.csv:2: run_s@cpu is missing"),
        ("name,run_s,cold_s,memory_mib,run_s@\nf,1,2,1,4\n", r"F.csv:1: the column 'run_s@' is not known"),
    ],
)
def test_wrong_functions_are_refused_with_file_line_and_what_is_expected(tmp_path, text, complaint):
    with pytest.raises(InputError, match=complaint):
        functions(tmp_path, text)


def test_a_truncated_gzip_is_refused(tmp_path):
    rows = "".join(f"{number},f\n" for number in range(50_000))
    whole = gzip.compress(f"time_s,function\n{rows}".encode())
    for part in (whole[: len(whole) // 2], whole[:12], b"not gzip at all"):
        with pytest.raises(InputError, match=r"A.csv.gz:\d+: cannot be read from here on: the gzip file is damaged"):
            trace(tmp_path, part, "A.csv.gz").overview()


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"nowhere.csv: there is no such file"):
        FunctionsFile(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="is not a regular file; it is read more than once"):
        FunctionsFile(tmp_path)


def test_a_function_that_fits_no_device_is_refused_with_what_each_says(tmp_path):
    listed = functions(tmp_path, FUNCTIONS + "big,1,1,20000\n")
    devices = parse_devices("small:1,large:1", memory_bytes=2**30, concurrency=1, kinds={"large": DeviceKind("16GiB")})
    with pytest.raises(
        InputError,
        match=r"F.csv:4: function 'big' fits no device: small-1: needs 20971520000 bytes of 1073741824; large-1: needs",
    ):
        listed.check_fit(devices)


def test_devices_by_number_and_by_kind(tmp_path):
    assert [d.name for d in parse_devices("2", memory_bytes=1, concurrency=3)] == ["gpu-1", "gpu-2"]
    spec = tmp_path / "kinds.toml"
    spec.write_text('[rtx4090]\nmemory = "24GiB"\nspeed = 1.7\nbandwidth = "20GB"\nconcurrency = 4\n')
    fast, other = parse_devices(
        "rtx4090:1, rtx3090:1", memory_bytes=5, concurrency=2, kinds=read_device_file(spec).kinds
    )
    assert (fast.memory_bytes, fast.speed, fast.bandwidth_bytes_s, fast.concurrency) == (24 * 2**30, 1.7, 2e10, 4)
    assert (other.name, other.memory_bytes, other.speed, other.concurrency) == ("rtx3090-1", 5, 1, 2)


def test_unbounded_memory_is_unbounded_on_every_kind():
    kinds = {"a": DeviceKind(memory="1GiB")}
    assert parse_devices("a:1", memory_bytes=None, concurrency=1, kinds=kinds)[0].memory_bytes is None


def test_a_cpu_device_is_there_for_functions_without_a_gpu_share(tmp_path):
    text = "name,run_s,cold_s,memory_mib,share\nf,1,2,1,0\n"
    host = functions(tmp_path, text).functions.values()
    gpus = parse_devices("1", memory_bytes=1, concurrency=2)
    assert [d.name for d in with_cpu(gpus, host, concurrency=2)] == ["gpu-1", "cpu-1"]
    own = parse_devices("gpu:1,cpu:2", memory_bytes=1, concurrency=2)
    assert with_cpu(own, host, concurrency=2) == own
    described = with_cpu(gpus, host, concurrency=2, kinds={"cpu": DeviceKind(concurrency=4)})
    assert described[-1].concurrency == 4
    assert with_cpu(gpus, functions(tmp_path).functions.values(), concurrency=2) == gpus


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0", "'0' is neither"),
        ("", "'' is neither"),
        ("gpu", "'gpu' is neither"),
        ("a:1,a:2", "kind a is listed twice"),
    ],
)
def test_wrong_devices_are_refused(text, complaint):
    with pytest.raises(InputError, match=f"--devices: {complaint}"):
        parse_devices(text, memory_bytes=1, concurrency=1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[a]\nspeed = 0\n", r"\[a\].speed is 0.0; it takes a number from 1e-06 to 1e\+06"),
        ("[a]\nspeeed = 1\n", r"\[a\]: .*speeed.*; it takes memory, concurrency, bandwidth, speed"),
        ("[a]\nconcurrency = 'x'\n", r"\[a\]: Expected"),
        ("a = 1\n", r"\[a\]: Expected"),
        ("[a\n", "is not a TOML file"),
    ],
)
def test_a_wrong_device_file_is_refused(tmp_path, text, complaint):
    path = tmp_path / "kinds.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        read_device_file(path)


@pytest.mark.parametrize("text", ["1,2,x", "2,3", "1,3,2", "", "1,inf"])
def test_a_wrong_interference_curve_is_refused(text):
    with pytest.raises(InputError, match=r"--interference: .* is not a curve; it takes off, v100, or factors"):
        parse_curve(text)


def test_an_interference_curve_is_read():
    assert parse_curve("off") is None
    assert parse_curve("1,1.5").stretch(3) == 2
    assert parse_curve("v100").stretch(5) == pytest.approx(2.475)
