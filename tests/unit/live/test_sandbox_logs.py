"""The collector of output on its own: bounded, whole lines, whatever the pieces."""

import os

import pytest

from aliquot.live.node.logs import Logs


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


def test_silence_is_no_lines(pipes):
    logs, _, _ = pipes
    logs.begin(1000)
    assert logs.finish() == ()


def test_a_line_that_arrives_in_pieces_is_one_line(pipes):
    logs, out, _ = pipes
    logs.begin(1000)
    for piece in (b"on", b"e\ntw", b"o"):
        os.write(out, piece)
        assert logs.read(0)
    assert [line[31:] for line in logs.finish()] == ["stdout: one", "stdout: two"]


def test_a_line_without_an_end_is_a_line_even_when_the_pipes_are_empty_at_the_end(pipes):
    logs, out, _ = pipes
    logs.begin(1000)
    os.write(out, b"no newline")
    logs.read(0)
    assert [line[31:] for line in logs.finish(printed=False)] == ["stdout: no newline"]


def test_pipes_that_are_said_to_be_empty_are_not_read(pipes):
    logs, out, _ = pipes
    logs.begin(1000)
    os.write(out, b"after the reply\n")
    assert logs.finish(printed=False) == ()
    logs.begin(1000)
    assert [line[31:] for line in logs.finish()] == ["stdout: after the reply"]


def test_what_a_child_prints_after_the_end_belongs_to_the_next(pipes):
    logs, out, _ = pipes
    logs.begin(1000)
    assert logs.finish() == ()
    os.write(out, b"late\n")
    logs.begin(1000)
    assert [line[31:] for line in logs.finish()] == ["stdout: late"]


@pytest.mark.parametrize("limit", [1, 39, 40, 100, 1000])
@pytest.mark.parametrize("text", [b"\n", b"x", b"word\n", "ż".encode()])
def test_no_output_exceeds_its_limit(pipes, limit, text):
    logs, out, _ = pipes
    logs.begin(limit)
    os.write(out, text * 2000)
    while logs._begun[0] or os.get_blocking(out):
        if not logs.read(0) or logs._truncated:
            break
    lines = logs.finish()
    assert lines[-1].endswith(f"exceeds the limit of {limit} bytes.")
    assert sum(len(line.encode()) for line in lines[:-1]) <= limit + 8, "a cut character counts as its replacement"


def test_a_failure_says_that_more_may_be_missing(pipes):
    logs, _, _ = pipes
    logs.begin(1000)
    assert [line[31:] for line in logs.finish(failed=True)] == [
        "stderr: The action did not initialize or run as expected. Log data might be missing."
    ]
