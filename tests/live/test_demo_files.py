"""The demonstration's part about files, on a real server."""

from msgspec.structs import replace

from aliquot.testing.server import LiveServer
from aliquot_bench.demo.files import FilesResult, FilesSkipped, FileWait, show_files


def test_a_cold_function_finds_its_files_there_before_it_asks(tmp_path):
    with LiveServer(tmp_path / "data") as server:
        shown = show_files(server)
    assert isinstance(shown, FilesResult), shown.text()
    assert shown.unknown.cold
    assert shown.known.cold
    assert shown.unknown.prefetched_bytes == 0
    assert shown.known.prefetched_bytes == shown.known.bytes
    assert shown.known.seconds < shown.unknown.seconds
    assert "s less." in shown.text()


def test_what_cannot_be_shown_is_said_and_what_came_out_otherwise_is_no_success():
    assert "FUSE" in FilesSkipped("no FUSE").text()
    first, later = (
        FileWait(1, cold=True, bytes=5, prefetched_bytes=0),
        FileWait(1.5, cold=True, bytes=5, prefetched_bytes=5),
    )
    assert not FilesResult(first, later, "markov1").ok
    sooner = replace(later, seconds=0.5)
    assert FilesResult(first, sooner, "markov1").ok
    assert not FilesResult(first, replace(sooner, cold=False), "markov1").ok
    assert not FilesResult(replace(first, cold=False), sooner, "markov1").ok
    assert not FilesResult(first, replace(sooner, prefetched_bytes=4), "markov1").ok
