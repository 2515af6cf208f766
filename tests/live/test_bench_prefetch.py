"""The prefetch benchmark: its real link and origin, figures computed from sessions, and a tiny run."""

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.errors import InputError
from aliquot.core.units import MB
from aliquot.testing.waiting import wait_until
from aliquot_bench.base import BenchRequest
from aliquot_bench.environments import MeasurementError
from aliquot_bench.origin import link as links
from aliquot_bench.origin.content import PERIOD, pieces
from aliquot_bench.origin.link import LinkError, LinkShape, addresses, remove_stale_links, serve_origin
from aliquot_bench.origin.process import BURST_S, Pacer, parse_range
from aliquot_bench.prefetch import picture
from aliquot_bench.prefetch.bench import PrefetchBench
from aliquot_bench.prefetch.control import ControlPart
from aliquot_bench.prefetch.interference import InterferencePart
from aliquot_bench.prefetch.methods import LEARNED, PLAIN, PRELOADED, VIEW, MethodsPart
from aliquot_bench.prefetch.part import PrefetchSizes
from aliquot_bench.prefetch.trial import (
    SessionTrial,
    curve,
    hidden,
    ideal,
    make_trial,
    moved_between,
    quantile,
    wasted_share,
)
from aliquot_bench.prefetch.workload import DEVIATES, RECORDED, SHARDS, RepeatedWorkflow, ShuffledEpochs

FILES = {"a/one.bin": 3 * PERIOD + 17, "a/b/two words.txt": 5, "three": 0}


def bytes_of(path, start, length):
    return b"".join(pieces(path, start, length))


@pytest.fixture(scope="module")
def namespaces():
    try:
        with serve_origin({}, LinkShape(), force="tc"):
            pass
    except LinkError as error:
        pytest.skip(f"no network namespaces with traffic control here: {error}")


@given(st.integers(0, 3 * PERIOD), st.integers(0, 5000), st.integers(1, 2000))
def test_a_range_of_a_file_is_the_same_however_it_is_cut(start, length, piece):
    whole = bytes_of("x", 0, 4 * PERIOD)[start : start + length]
    assert b"".join(pieces("x", start, length, piece)) == whole
    assert len(whole) == length


def test_files_differ_by_their_path_and_chunks_by_their_place():
    assert bytes_of("x", 0, 100) != bytes_of("y", 0, 100)
    assert bytes_of("x", 0, 100) != bytes_of("x", 1 << 20, 100)


@given(st.lists(st.tuples(st.integers(1, 100_000), st.floats(0, 0.01)), min_size=1, max_size=50))
def test_a_sender_that_waits_as_long_as_reserved_never_exceeds_the_rate(sends):
    pacer, now, sent = Pacer(1 * MB), 0.0, 0
    for size, gap_s in sends:
        now += gap_s
        now += pacer.reserve(size, now=now)
        sent += size
        assert sent <= MB * (now + BURST_S) + 1e-6


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("", (0, 10)),
        ("bytes=0-3", (0, 4)),
        ("bytes=4-", (4, 6)),
        ("bytes=8-100", (8, 2)),
        ("bytes=10-", None),
        ("bytes=-3", None),
        ("lines=1-2", None),
    ],
)
def test_a_range_header_is_limited_to_the_file(header, wanted):
    assert parse_range(header, 10) == wanted


@pytest.fixture(scope="module", params=["paced", "tc"])
def link(request):
    if request.param == "tc":
        request.getfixturevalue("namespaces")
    with serve_origin(FILES, LinkShape(200 * MB, 0.001), force=request.param) as made:
        yield made


def test_the_origin_serves_whole_files_and_ranges(link):
    with httpx.Client(base_url=link.url) as client:
        whole = client.get("a/one.bin")
        assert whole.content == bytes_of("a/one.bin", 0, FILES["a/one.bin"])
        part = client.get("a/one.bin", headers={"Range": "bytes=1000-1000999"})
        assert part.status_code == 206
        assert part.headers["Content-Range"] == f"bytes 1000-1000999/{FILES['a/one.bin']}"
        assert part.content == whole.content[1000:1_001_000]
        assert client.get("a/one.bin", headers={"Range": "bytes=99999999-"}).status_code == 416
        assert client.get("three").content == b""
        assert client.get("four").status_code == 404


def test_the_origin_tells_size_and_version_without_sending_anything(link):
    before = link.sent_counts()
    told = httpx.head(f"{link.url}/a/one.bin").headers
    assert int(told["Content-Length"]) == FILES["a/one.bin"]
    assert told["ETag"]
    after = link.sent_counts()
    assert after.sent == before.sent
    assert after.requests == before.requests + 1


def test_the_origin_counts_what_it_sends_by_file(link):
    before = link.sent_counts().sent
    httpx.get(f"{link.url}/a/one.bin", headers={"Range": "bytes=0-99"})
    httpx.get(f"{link.url}/a/b/two%20words.txt")
    assert moved_between(before, link.sent_counts().sent) == {"a/one.bin": 100, "a/b/two words.txt": 5}


def test_directory_pages_link_to_what_is_in_them(link):
    assert 'href="b/"' in httpx.get(f"{link.url}/a/").text
    assert 'href="two%20words.txt"' in httpx.get(f"{link.url}/a/b/").text
    assert 'href="three"' in httpx.get(f"{link.url}/").text
    assert httpx.get(f"{link.url}/nowhere/").status_code == 404


def test_the_link_is_no_faster_than_it_was_asked_to_be(link):
    found = link.measure()
    assert found.bytes_per_s < 210 * MB
    assert found.latency_s >= 0.001


def test_what_is_forced_and_not_permitted_says_why(monkeypatch):
    monkeypatch.setattr(links.shutil, "which", lambda name: None if name == "tc" else f"/bin/{name}")
    with pytest.raises(LinkError, match="there is no tc"), serve_origin({}, LinkShape(), force="tc"):
        pass
    with serve_origin({}, LinkShape()) as made:
        assert made.description == "an origin on this machine that paces itself (traffic control: there is no tc)"


SERVE = """
import sys
from aliquot_bench.origin.link import LinkShape, serve_origin
with serve_origin({}, LinkShape(), force="tc") as link:
    print(link.url, flush=True)
    sys.stdin.read()
"""


def interface(pid):
    return Path(f"/sys/class/net/{links.INTERFACE_PREFIX}{pid}")


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGINT])
def test_the_network_interface_is_removed_however_its_process_ends(ended_by):
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with process:
        assert process.stdout.readline().startswith(b"http://198.18.")
        assert interface(process.pid).exists()
        process.send_signal(ended_by)
        process.wait()
    wait_until(lambda: not interface(process.pid).exists(), what="the network interface to be removed")


@pytest.mark.usefixtures("namespaces")
def test_the_network_interface_of_a_dead_process_is_removed():
    dead = subprocess.Popen(["true"])
    dead.wait()
    for pid in (dead.pid, 1):  # process 1 is alive
        subprocess.run(["ip", "link", "add", f"{links.INTERFACE_PREFIX}{pid}", "type", "veth"], check=True)
    try:
        remove_stale_links()
        assert not interface(dead.pid).exists()
        assert interface(1).exists()
    finally:
        subprocess.run(["ip", "link", "delete", f"{links.INTERFACE_PREFIX}1"], check=True)


def test_every_process_has_addresses_of_its_own():
    pairs = [addresses(pid) for pid in range(1 << 14)]
    assert len({end for pair in pairs for end in pair}) == 2 << 14
    assert addresses(1) == ("198.18.0.5", "198.18.0.6")


# --- the workload ---------------------------------------------------------------------------------------------


def test_a_session_is_config_then_shards_then_checkpoint_then_evaluation():
    flow = RepeatedWorkflow(8, 240 * MB)
    session = flow.regular("user3")
    folders = [file.path.partition("/")[0] for file in session.files]
    assert folders == ["configs", *["sets"] * SHARDS, "checkpoints", "eval"]
    assert 0.8 * 240 * MB <= session.bytes <= 1.2 * 240 * MB
    assert all(flow.files[file.path] == file.size for file in session.files)


def test_users_share_sets_and_nothing_else():
    flow = RepeatedWorkflow(8, 240 * MB)
    one, fifth = ({file.path for file in flow.regular(user).files} for user in ("user1", "user5"))
    assert one & fifth == {f"sets/a/shard-{shard}.bin" for shard in range(SHARDS)}


def test_the_same_seed_gives_the_same_sessions():
    assert RepeatedWorkflow(8, MB, seed=3).interleaved(9) == RepeatedWorkflow(8, MB, seed=3).interleaved(9)
    assert RepeatedWorkflow(8, MB, seed=3).interleaved(9) != RepeatedWorkflow(8, MB, seed=4).interleaved(9)


def test_some_sessions_are_out_of_the_ordinary_and_most_are_not():
    flow = RepeatedWorkflow(8, MB)
    sessions = flow.interleaved(100)
    odd = [session for session in sessions if session != flow.regular(session.user)]
    assert len(odd) == len(sessions) / DEVIATES
    assert not any(session.repeats for session in odd)
    assert [session.user for session in sessions].count("user1") == 100


def test_an_epoch_reads_half_of_the_set_in_no_order():
    shuffled = ShuffledEpochs(8)
    first, second = shuffled.epoch(), shuffled.epoch()
    assert len(set(first.files)) == 8 == len(shuffled.files) / 2
    assert set(first.files) != set(second.files)
    assert sorted(shuffled.files.values()) == [MB * size for size in sorted(RECORDED)]


# --- figures of sessions -------------------------------------------------------------------------------------


def trial(user="u", lead_s=0.0, loading_s=1.0, moved=None, files=("a",)):
    return SessionTrial(user, lead_s, loading_s, 0.5, 1, moved or {}, files)


def test_a_session_is_read_from_what_the_function_returns():
    session = RepeatedWorkflow(1, MB).regular("user1")
    result = {"began": 10.0, "sizes": [file.size for file in session.files], "marks": [11, 12, 13, 14, 15, 16, 17.5]}
    made = make_trial(session, 2, 9.5, result, {"dataTime": 1500, "opened": {"prefetched": 7}})
    assert (made.loading_s, made.first_batch_s, made.waited_s) == (7.5, 2.5, 1.5)
    assert made.read_bytes == session.bytes
    assert made.opened == {"prefetched": 7}


def test_what_is_moved_and_not_read_or_moved_twice_is_wasted():
    sizes = {"a": 10, "b": 20, "c": 30}
    made = trial(moved={"a": 10, "b": 25, "c": 7}, files=("a", "b"))
    assert made.wasted_bytes(sizes) == 5 + 7
    assert wasted_share([made, trial(moved={"a": 8})], sizes) == 12 / 50
    assert wasted_share([trial()], sizes) is None


def test_the_curve_stands_against_the_plain_mount_of_the_same_users():
    trials = [trial("u", 1, 1.0), trial("v", 1, 3.0), trial("u", 4, 0.1), trial("v", 4, 0.2)]
    low, high = curve(trials, {"u": 2.0, "v": 4.0})
    assert (low.lead_s, low.transfer_s, low.enough) == (1, 3, False)
    assert low.hidden == pytest.approx(1 - 4 / 6)
    assert low.ideal == pytest.approx(2 / 6)
    assert high.enough
    assert high.ideal == 1
    assert high.hidden == pytest.approx(0.95)


@given(st.floats(0, 20), st.floats(0.01, 10))
def test_no_more_fits_than_the_link_carries_before_the_first_read(lead_s, transfer_s):
    assert 0 <= ideal(lead_s, transfer_s) <= 1
    assert hidden(max(0, transfer_s - lead_s), transfer_s) == pytest.approx(ideal(lead_s, transfer_s))


def test_a_quantile_of_one_value_is_that_value():
    assert quantile([3.0], 99) == 3
    assert quantile(list(range(101)), 99) == 99


# --- a tiny run -----------------------------------------------------------------------------------------------

TINY = PrefetchSizes(
    users=2,
    session_bytes=4 * MB,
    training=5,
    leads_s=(0, 1),
    each_lead=1,
    each_method=1,
)


@pytest.mark.long
def test_the_files_of_a_session_that_repeats_are_there_before_it_asks():
    part = MethodsPart(TINY)
    steps = []
    with serve_origin(part.files, LinkShape(20 * MB, 0.001), force="paced") as link:
        part.run(link, steps.append)
    assert len(steps) == part.steps
    methods, leads = part.tables()
    loading = {row[0]: row[2] for row in methods.rows}
    assert list(loading) == [PLAIN, VIEW, PRELOADED, f"{LEARNED}, enough lead"]
    assert all((row[6] == 0) is (row[0] == PRELOADED) for row in methods.rows)  # moved
    assert [row[0] for row in leads.rows] == [0, 1]
    ahead = part._trials[LEARNED][-1]
    assert ahead.opened["prefetched"] >= 6  # of seven, because one evaluation deviated
    assert ahead.waited_s < loading[VIEW]
    assert [goal.name for goal in part.goals() if goal.value is None] == []


def test_a_part_that_fails_is_named_and_its_goals_are_not_met(monkeypatch, tmp_path):
    def fail(*_):
        raise MeasurementError("there is no server")

    for part in (MethodsPart, ControlPart, InterferencePart):
        monkeypatch.setattr(part, "run", fail)
    chosen = PrefetchBench(BenchRequest(tmp_path), TINY)
    result = chosen.run(lambda _: None)
    assert result.tables[-1].rows == [[name, "there is no server"] for name in ("methods", "control", "interference")]
    assert not any(goal.met for goal in result.goals)
    assert "cable" in result.tables[0].rows[0][1] or "paces itself" in result.tables[0].rows[0][1]
    with pytest.raises(InputError, match="nothing to draw"):
        chosen.draw(tmp_path / "o.png")


def test_the_control_is_against_the_plain_mount():
    part = ControlPart(TINY)
    for name, loading_s in ((PLAIN, 2.0), (VIEW, 2.2), (LEARNED, 2.02)):
        part._trials[name] = [trial(loading_s=loading_s, moved={"volumes/000.npz": 5}, files=("volumes/000.npz",))]
    assert part.slowdown(LEARNED) == pytest.approx(1)
    (goal,) = part.goals()
    assert goal.met
    (table,) = part.tables()
    assert [row[0] for row in table.rows] == [PLAIN, VIEW, LEARNED]


def test_the_picture_is_drawn(tmp_path):
    points = curve([trial("u", 1, 1.0), trial("u", 4, 0.1)], {"u": 2.0})
    picture.draw(points, {PLAIN: 2.0, f"{LEARNED}, enough lead": 0.1}, tmp_path / "o.png")
    assert (tmp_path / "o.png").stat().st_size > 0
