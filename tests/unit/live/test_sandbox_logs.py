"""The collector of output on its own: bounded, whole lines, whatever the pieces."""

import os

import pytest

from aliquot.live.node.logs import Logs
from aliquot.runtime.frames import MARKER


@pytest.fixture
def pipes():
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    for fd in (out, err):
        os.set_blocking(fd, False)
    logs = Logs(out, err)
    yield logs, out_end, err_end
    for fd in (out, out_end, err, err_end):
        os.close(fd)


def finish(out: int, err: int) -> None:
    for fd in (out, err):
        os.write(fd, MARKER)


def test_silence_is_no_lines(pipes):
    logs, out, err = pipes
    logs.begin(1000)
    finish(out, err)
    assert logs.finish() == ()


def test_a_line_that_arrives_in_pieces_is_one_line(pipes):
    logs, out, err = pipes
    logs.begin(1000)
    for piece in (b"on", b"e\ntw", b"o"):
        os.write(out, piece)
        assert logs.read(0)
    finish(out, err)
    assert [line[31:] for line in logs.finish()] == ["stdout: one", "stdout: two"]


def test_a_marker_that_arrives_in_pieces_is_no_line(pipes):
    logs, out, err = pipes
    logs.begin(1000)
    os.write(out, MARKER[:10])
    logs.read(0)
    os.write(out, MARKER[10:])
    os.write(err, MARKER)
    assert logs.finish() == ()


def test_what_a_child_prints_after_the_end_belongs_to_the_next(pipes):
    logs, out, err = pipes
    logs.begin(1000)
    finish(out, err)
    assert logs.finish() == ()
    os.write(out, b"late\n")
    logs.begin(1000)
    finish(out, err)
    assert [line[31:] for line in logs.finish()] == ["stdout: late"]


@pytest.mark.parametrize("limit", [1, 39, 40, 100, 1000])
@pytest.mark.parametrize("text", [b"\n", b"x", b"word\n", "ż".encode()])
def test_no_output_exceeds_its_limit(pipes, limit, text):
    logs, out, err = pipes
    logs.begin(limit)
    os.write(out, text * 2000)
    while logs._begun[0] or os.get_blocking(out):
        if not logs.read(0) or logs._truncated:
            break
    finish(out, err)
    lines = logs.finish()
    assert lines[-1].endswith(f"exceeds the limit of {limit} bytes.")
    assert sum(len(line.encode()) for line in lines[:-1]) <= limit + 8, "a cut character counts as its replacement"


def test_a_failure_says_that_more_may_be_missing(pipes):
    logs, _, _ = pipes
    logs.begin(1000)
    assert [line[31:] for line in logs.finish(failed=True)] == [
        "stderr: The action did not initialize or run as expected. Log data might be missing."
    ]
