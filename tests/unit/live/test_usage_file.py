"""The usage file: bounded, the oldest overwritten, and never a torn record shown as data."""

import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from aliquot.core.errors import InputError
from aliquot.live.usage.file import MIN_FILE_BYTES, UsageFile, check_size
from aliquot.live.usage.reading import read_usage
from aliquot.live.usage.records import HEAD_BYTES, RECORD_BYTES, UsageLabel, UsageSample, pack_sample
from aliquot.live.usage.ring import cycle_of, newest_first, next_number
from aliquot.live.usage.series import usage_rows
from aliquot.testing.waiting import wait_until

WHO = UsageLabel("guest", "resize", 7, "host-1")
WRITER = """
import sys, itertools
from pathlib import Path
from aliquot.live.usage.file import UsageFile
from aliquot.live.usage.records import UsageLabel, UsageSample
file = UsageFile(Path(sys.argv[1]), 64 * 1024)
label = file.label(UsageLabel("guest", "resize", 7, "host-1"))
labelled = file.position
for number in itertools.count():
    if file.age(labelled) > 500:
        labelled = file.position
        file.label(UsageLabel("guest", "resize", 7, "host-1"), label)
    for part in range(8):
        t_us = number * 8 + part
        file.add(UsageSample(label, t_us, (t_us % 10000) / 10000, 0.5, 1.0, t_us * 1024))
    file.flush()
"""


def size_for(capacity):
    return HEAD_BYTES + capacity * RECORD_BYTES


def sample(label, number):
    return UsageSample(label, 1_000_000 + number * 10_000, (number % 10_000) / 10_000, 0.25, 1.0, number * 1024)


def samples_of(path):
    return [sample for track in read_usage(path, None) for sample in track.samples]


@given(
    capacity=st.integers(20, 60),
    bursts=st.lists(st.tuples(st.integers(1, 15), st.booleans()), min_size=1, max_size=30),
    torn=st.lists(st.integers(0, 59), max_size=3),
)
def test_what_is_read_is_the_newest_of_what_was_written_in_order(tmp_path_factory, capacity, bursts, torn):
    path = tmp_path_factory.mktemp("usage") / "usage.ring"
    file = UsageFile(path, size_for(capacity))
    label = file.label(WHO)
    written = 0
    for count, again in bursts:
        for _ in range(count):
            file.add(sample(label, written))
            written += 1
        file.flush()
        if again:  # another server goes on where this one ended
            file.close()
            file = UsageFile(path, size_for(capacity))
    file.close()
    assert path.stat().st_size <= size_for(capacity)
    data = bytearray(path.read_bytes())
    places = (len(data) - HEAD_BYTES) // RECORD_BYTES
    for place in {place % places for place in torn}:
        data[HEAD_BYTES + place * RECORD_BYTES + 9] ^= 0xFF
    path.write_bytes(data)
    found = samples_of(path)
    everything = [sample(label, number) for number in range(written)]
    assert all(one in everything for one in found)
    assert [one.t_us for one in found] == sorted({one.t_us for one in found})
    kept = everything[-min(written, capacity) :]
    assert len(found) >= len(kept) - len(torn) - 4 * (written < capacity)
    if not torn and written >= capacity:
        assert found == kept


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_numbers_go_on_where_they_begin_again(capacity, begin):
    """After four thousand million records they start at 0: the newest is still found."""
    cycle = cycle_of(capacity)
    assert cycle <= 2**32
    assert cycle % capacity == 0
    places = {}
    for ahead in range(capacity + 3):
        number = (begin + ahead) % cycle
        places[number % capacity] = pack_sample(number, sample(1, ahead))
    newest = (begin + capacity + 2) % cycle
    assert next_number(lambda place: places.get(place, b""), capacity, capacity) == (newest + 1) % cycle
    assert len(list(newest_first(lambda place: places.get(place, b""), capacity, capacity))) == capacity


def test_a_label_is_said_again_before_it_is_overwritten_and_names_what_came_between(tmp_path):
    file = UsageFile(tmp_path / "usage.ring", size_for(40))
    label = file.label(WHO)
    for number in range(30):
        file.add(sample(label, number))
    assert file.label(WHO, label) == label
    for number in range(30, 40):
        file.add(sample(label, number))
    file.flush()
    (track,) = read_usage(tmp_path, None)
    assert track.label == WHO
    assert track.samples[-1] == sample(label, 39)
    assert track.samples[0].t_us < sample(label, 30).t_us


@pytest.mark.parametrize("after_s", [0.05, 0.11, 0.23, 0.31])
def test_a_writer_that_is_killed_leaves_only_whole_samples_and_the_next_one_goes_on(tmp_path, after_s):
    path = tmp_path / "usage.ring"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path])
    wait_until(
        lambda: writer.poll() is not None or (path.exists() and path.stat().st_size >= MIN_FILE_BYTES // 2),
        what="half of the file",
    )
    assert writer.poll() is None
    time.sleep(after_s)
    samples_of(path)  # while it is written
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    before = samples_of(path)
    assert [one.t_us for one in before] == list(range(before[0].t_us, before[-1].t_us + 1))
    assert all(one.share == (one.t_us % 10000) / 10000 for one in before)
    assert all(one.memory_bytes == one.t_us * 1024 % 2**42 for one in before)
    file = UsageFile(path, MIN_FILE_BYTES)
    label = file.label(WHO)
    file.add(UsageSample(label, before[-1].t_us + 1, 0.5, 0.5, 1.0, 1024))
    file.flush()
    file.close()
    after = samples_of(path)
    assert after[-1].t_us == before[-1].t_us + 1
    assert len(after) >= len(before) - 10  # what was overwritten: the label and the sample


def test_a_record_that_is_cut_off_at_the_end_is_not_shown(tmp_path):
    path = tmp_path / "usage.ring"
    file = UsageFile(path, MIN_FILE_BYTES)
    label = file.label(WHO)
    for number in range(10):
        file.add(sample(label, number))
    file.flush()
    file.close()
    os.truncate(path, path.stat().st_size - 5)
    assert samples_of(path) == [sample(label, number) for number in range(9)]
    file = UsageFile(path, MIN_FILE_BYTES)
    file.add(sample(label, 20))
    file.flush()
    assert samples_of(path) == [*(sample(label, number) for number in range(9)), sample(label, 20)]


def test_a_file_of_another_size_or_kind_is_begun_anew(tmp_path):
    path = tmp_path / "usage.ring"
    path.write_bytes(b"something else" * 100)
    with pytest.raises(InputError, match="not a usage file of this version"):
        read_usage(tmp_path, None)
    for size in (MIN_FILE_BYTES, 2 * MIN_FILE_BYTES):
        file = UsageFile(path, size)
        file.add(sample(file.label(WHO), 1))
        file.flush()
        file.close()
        assert len(samples_of(path)) == 1


def test_a_full_disk_loses_samples_and_not_the_server(tmp_path):
    file = UsageFile(tmp_path / "usage.ring", MIN_FILE_BYTES)
    label = file.label(WHO)
    file.add(sample(label, 1))
    file.flush()
    real, file._fd = file._fd, os.open("/dev/full", os.O_WRONLY)
    with capture_logs() as said:
        for number in (2, 3):
            file.add(sample(label, number))
            file.flush()
    assert [line["event"] for line in said] == ["usage cannot be written"]
    os.close(file._fd)
    file._fd = real
    file.add(sample(label, 4))
    file.flush()
    assert samples_of(tmp_path) == [sample(label, 1), sample(label, 4)]


def test_sizes_that_hold_nothing_are_refused():
    with pytest.raises(InputError, match="--usage-size: 1000 bytes are too few; it takes 64KiB or more"):
        check_size(1000, "--usage-size")


def test_windows_have_the_mean_of_what_falls_into_them(tmp_path):
    file = UsageFile(tmp_path / "usage.ring", MIN_FILE_BYTES)
    label = file.label(WHO)
    t_us = 5_000_000_000

    def add(after_ms, share, memory=2**20):
        file.add(UsageSample(label, t_us + after_ms * 1000, share, 0.25, 1.0, memory))

    add(0, 0)
    add(50, 1.0)
    add(150, 0.5)  # half of it in the second window
    add(200, 0.0, 3 * 2**20)
    add(1200, 0.0)  # a second of nothing
    add(1300, 0.25)
    add(1350, 0.9)  # a window that is not whole
    file.flush()
    (row,) = usage_rows(read_usage(tmp_path, None), 100, each_sandbox=False)
    assert [window.share for window in row.windows] == [0.75, 0.25, *[0] * 10, 0.25]
    assert {window.request for window in row.windows} == {0.25}
    assert row.share == pytest.approx(1.25 / 3)
    assert (row.active_s, row.compute_s, row.peak) == (0.3, 0.125, 0.75)
    assert row.peak_bytes == 3 * 2**20
    assert row.sandboxes == [7]


def test_only_what_is_recent_is_read_and_still_has_its_name(tmp_path):
    file = UsageFile(tmp_path / "usage.ring", MIN_FILE_BYTES)
    label = file.label(WHO)
    for number in range(500):
        file.add(sample(label, number))
    file.flush()
    (track,) = read_usage(tmp_path, 1.0)
    assert track.label == WHO
    assert track.samples == [sample(label, number) for number in range(399, 500)]


def test_sandboxes_of_a_function_are_added_up_or_stand_for_themselves(tmp_path):
    file = UsageFile(tmp_path / "usage.ring", MIN_FILE_BYTES)
    for number in (1, 2):
        label = file.label(UsageLabel("guest", "resize", number, "host-1"))
        for step in range(11):
            file.add(UsageSample(label, step * 100_000, 0.25, 0.25, 1.0, 2**20))
    file.flush()
    tracks = read_usage(tmp_path, None)
    (both,) = usage_rows(tracks, 100, each_sandbox=False)
    assert (both.request, both.share, both.deviation, both.peak_bytes) == (0.5, 0.5, 0, 2 * 2**20)
    assert [row.share for row in usage_rows(tracks, 100, each_sandbox=True)] == [0.25, 0.25]
