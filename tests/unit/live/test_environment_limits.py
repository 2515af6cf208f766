"""The order of builds and the space of environments: pure decisions."""

import pytest

from aliquot.live.node.environments.build_queue import FIRST_DELAY_S, MAX_DELAY_S, BuildFailures, BuildQueue
from aliquot.live.node.environments.disk import EnvironmentMark, StoredEnvironments, StoredMark
from aliquot.live.node.environments.errors import EnvironmentsFullError, RequirementsError
from aliquot.live.node.environments.installer_output import InstallerOutput
from aliquot.live.node.environments.limits import EnvironmentLimits

DAY_S = 86400


def queue(at_once, waiting=100):
    begun = []
    return BuildQueue(at_once, waiting, begun.append), begun


def test_one_tenant_leaves_a_place_for_another():
    builds, begun = queue(3)
    for number in range(20):
        builds.add(f"a{number}", "attacker")
    assert begun == ["a0", "a1"]
    builds.add("n", "neighbour")
    assert begun == ["a0", "a1", "n"]
    builds.ended("n")
    assert begun == ["a0", "a1", "n"], "the last place stays free"
    builds.ended("a0")
    assert begun[-1] == "a2"


def test_tenants_take_turns():
    builds, begun = queue(2)
    for number in range(3):
        builds.add(f"a{number}", "a")
    builds.add("b0", "b")
    builds.add("b1", "b")
    builds.add("c0", "c")
    while len(begun) < 6:
        builds.ended(begun[len(begun) - builds.running])
    assert begun[:4] == ["a0", "b0", "c0", "a1"]
    assert sorted(begun) == ["a0", "a1", "a2", "b0", "b1", "c0"]


def test_with_one_place_the_only_tenant_has_it():
    builds, begun = queue(1)
    builds.add("a0", "a")
    builds.add("a1", "a")
    assert begun == ["a0"]
    builds.ended("a0")
    assert begun == ["a0", "a1"]


def test_who_else_waits_for_a_build_brings_it_forward():
    builds, begun = queue(3)
    for number in range(10):
        builds.add(f"a{number}", "a")
    builds.add("a9", "b")
    assert begun == ["a0", "a1", "a9"]
    assert builds.waiting == 7, "it waits nowhere else"


def test_a_tenant_may_have_only_so_many_builds_that_wait():
    builds, _ = queue(2, waiting=3)
    for number in range(4):
        assert not builds.is_full("a")
        builds.add(f"a{number}", "a")
    assert builds.is_full("a")
    assert not builds.is_full("b")


def test_each_failure_in_a_row_doubles_the_time_to_the_next_attempt():
    failures, now_s = BuildFailures(), 0.0
    delays = []
    for _ in range(9):
        failures.add("x", RequirementsError("no"), now_s=now_s)
        found = failures.find("x", now_s=now_s)
        delays.append(found.retry_at_s - now_s)
        now_s = found.retry_at_s
        assert failures.find("x", now_s=now_s) is None
    assert delays[:3] == [FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S]
    assert delays[-1] == MAX_DELAY_S
    failures.forget("x")
    failures.add("x", RequirementsError("no"), now_s=now_s)
    assert failures.find("x", now_s=now_s).times == 1


def mark(size, *tenants):
    return EnvironmentMark(("x",), tenants, size)


def stored(busy=(), limits=None, **marks):
    """Environments with these marks. Each was used a second after the one before it."""
    found = [StoredMark(name, each, second) for second, (name, each) in enumerate(marks.items())]
    limits = limits or EnvironmentLimits(total_bytes=100, tenant_bytes=60)
    return StoredEnvironments(limits, lambda name: name not in busy, found)


def test_the_least_recently_used_environment_of_the_same_tenant_makes_space():
    kept = stored(old=mark(20, "a"), foreign=mark(10, "b"), new=mark(20, "a"))
    assert kept.make_space("x", mark(30, "a"), now_s=10) == ["old"]
    assert "new" in kept
    assert "foreign" in kept


def test_an_environment_in_use_stays_and_a_tenant_without_space_is_refused():
    kept = stored(busy=("old",), old=mark(40, "a"))
    with pytest.raises(EnvironmentsFullError, match="of namespace a would take"):
        kept.make_space("x", mark(30, "a"), now_s=10)
    assert "x" not in kept
    assert kept.make_space("x", mark(30, "b"), now_s=10) == []


def test_when_all_is_full_the_tenant_with_the_most_gives_way():
    kept = stored(small=mark(20, "b"), large=mark(30, "a"), larger=mark(30, "a"))
    assert kept.make_space("x", mark(25, "c"), now_s=10) == ["large"]


def test_an_environment_that_others_asked_for_too_is_not_removed_for_one_of_them():
    kept = stored(shared=mark(40, "a", "b"), own=mark(30, "a"))
    assert kept.make_space("x", mark(40, "a"), now_s=10) == ["own"]


def test_what_nobody_has_used_for_long_is_removed():
    limits = EnvironmentLimits(unused_s=30 * DAY_S)
    kept = stored(limits=limits, forgotten=mark(1, "a"), used=mark(1, "a"))
    kept.use("used", "a", now_s=20 * DAY_S)
    assert kept.make_space("x", mark(1, "b"), now_s=31 * DAY_S) == ["forgotten"]


def test_a_use_is_written_when_the_tenant_is_new_or_the_last_one_is_long_ago():
    kept = stored(x=mark(1, "a"))
    assert kept.use("x", "a", now_s=1) is None
    assert kept.use("x", "b", now_s=1).tenants == ("a", "b")
    assert kept.use("x", "a", now_s=2) is None
    assert kept.use("x", "a", now_s=1000).tenants == ("a", "b")
    assert kept.use("y", "a", now_s=1000) is None


def output(*chunks):
    reported = []
    said = InstallerOutput(reported.append)
    for chunk in chunks:
        said.add(chunk)
    return said, reported


def test_what_an_installer_prints_is_bounded_whatever_it_is():
    said, reported = output(*[b"x" * 65536] * 100, b"\n", *[b"line\n" * 10_000] * 10, b"\xff\nlast\n")
    assert sum(map(len, reported)) < 100_000
    assert len(reported[0]) == 1000
    assert said.last_lines().endswith("\ufffd last")


def test_the_address_of_the_index_proxy_is_left_out():
    said, reported = output()
    said.hide("http://127.0.0.1:1/token")
    said.add(b"ERROR: 404 for http://127.0.0.1:1/token/index/0/x/\n")
    assert reported == ["ERROR: 404 for index://index/0/x/"]


def test_the_error_of_an_installer_is_quoted():
    said, _ = output(b"Collecting x\nERROR: no x\nERROR: really\nbye\n")
    assert said.error_lines() == "ERROR: no x ERROR: really"
    assert output()[0].error_lines() == "it said nothing"
    assert output(b"a\nb\n")[0].error_lines() == "a b"
    built, _ = output(
        b"  error: subprocess-exited-with-error\n  | exit code: 1\n      Traceback\n      ValueError: no compiler\n"
        b"      [end of output]\n  note: this is not pip\n"
    )
    assert built.error_lines() == "error: subprocess-exited-with-error | exit code: 1 Traceback ValueError: no compiler"
