"""The transfer machine of the node cache: event in, step or decision out. No threads, no files, no clock."""

import errno

import pytest
from transfer_driver import CHUNK, Driver, StubOrigin, key

from aliquot.storage.cache.records import Urgency
from aliquot.storage.cache.transfers.decisions import FailRequest, FreeChunk, HandOver, RemoveFile, ServeRead
from aliquot.storage.cache.transfers.failures import MAX_CHANGES, MAX_FAILURES, RETRY_S
from aliquot.storage.cache.transfers.transfer import StepKind
from aliquot.storage.errors import AbsentError, CacheRefusedError, ChangedError, OriginError, RoomError
from aliquot.storage.records import Found

DISK_FULL = OSError(errno.ENOSPC, "No space left on device")


def errors_of(decisions):
    return [(decision.request, type(decision.error)) for decision in decisions if isinstance(decision, FailRequest)]


# --- a transfer from beginning to end -------------------------------------------------------------------------


def test_a_requested_file_is_asked_for_fetched_committed_and_handed_over():
    driver = Driver()
    request = driver.request("a")
    entry = driver.answer(driver.step(StepKind.ASK), 2 * CHUNK)
    first, second = driver.step(StepKind.CHUNK), driver.step(StepKind.CHUNK)
    assert (first.chunk, second.chunk) == (0, 1)
    driver.fetch(first)
    driver.fetch(second)
    assert driver.decisions() == []
    driver.now = 3.0
    driver.machine.committed(driver.step(StepKind.COMMIT), now=driver.now)
    assert driver.decisions() == [HandOver(request, entry, Found.FETCHED, 3.0)]
    assert driver.machine.transfers == {}
    assert (driver.machine.space.used_bytes, driver.machine.stats().open) == (2 * CHUNK, 1)


def test_all_requests_of_a_file_share_one_transfer():
    driver = Driver()
    requests = [driver.request("a"), driver.request("a", opens=False), driver.request("a", urgency=Urgency.PREFETCH)]
    driver.finish()
    assert [decision.request for decision in driver.decisions()] == requests
    assert driver.machine.stats().datasets["d"].fetched_bytes == 3 * CHUNK


def test_a_fresh_file_is_handed_over_without_a_step_and_an_old_one_is_asked_for():
    driver = Driver(revalidate_s=5)
    entry = driver.cached("a")
    request = driver.request("a")
    assert driver.decisions() == [HandOver(request, entry, Found.CACHED, 0.0)]
    assert driver.step() is None
    driver.now = 6.0
    request = driver.request("a")
    driver.answer(driver.step(StepKind.ASK), 3 * CHUNK)
    assert driver.decisions() == [HandOver(request, entry, Found.CACHED, 0.0)]


def test_a_changed_file_replaces_the_cached_one():
    driver = Driver(revalidate_s=5)
    old = driver.cached("a")
    driver.now = 6.0
    driver.request("a")
    new = driver.answer(driver.step(StepKind.ASK), 3 * CHUNK, "2")
    assert driver.decisions() == [RemoveFile(old)]
    assert driver.machine.space.entries == {key("a"): new}
    assert driver.machine.stats().datasets["d"].refetched == 1


def test_a_file_that_disappeared_from_the_disk_is_fetched_again():
    driver = Driver(revalidate_s=5)
    entry = driver.cached("a")
    request = driver.request("a")
    (handed,) = driver.decisions()
    driver.machine.file_lost(handed, now=driver.now)
    driver.machine.request(request, now=driver.now)
    assert driver.decisions() == [RemoveFile(entry)]
    assert driver.step().kind is StepKind.ASK
    assert driver.machine.stats().open == 0


def test_another_origin_under_the_same_name_ends_the_old_transfer():
    driver = Driver()
    old = driver.request("a")
    step = driver.step(StepKind.ASK)
    new = driver.request("a", origin=StubOrigin("other", "other"))
    assert errors_of(driver.decisions()) == [(old, ChangedError)]
    assert not step.is_current
    assert driver.machine.transfers[key("a")].waiting == [new]


# --- cancelling and urgency -----------------------------------------------------------------------------------


def test_the_last_request_to_be_cancelled_ends_the_transfer():
    driver = Driver()
    one, other = driver.request("a"), driver.request("a")
    entry = driver.answer(driver.step(StepKind.ASK), 2 * CHUNK)
    step = driver.step(StepKind.CHUNK)
    driver.machine.cancel(one, now=driver.now)
    assert step.is_current
    driver.machine.cancel(other, now=driver.now)
    assert driver.decisions() == [RemoveFile(entry)]
    driver.arrive(step)  # too late
    assert driver.step() is None
    assert (driver.decisions(), driver.machine.space.used_bytes) == ([], 0)


def test_a_demanded_file_goes_before_predictions_on_its_link_and_not_on_others():
    driver = Driver()
    driver.request("predicted", urgency=Urgency.PREFETCH, opens=False)
    driver.request("demanded")
    driver.request("elsewhere", urgency=Urgency.PREFETCH, opens=False, origin=StubOrigin("other", "other"))
    paths = [step.transfer.key.path for step in iter(driver.step, None)]
    assert paths == ["demanded", "elsewhere"]


def test_a_promoted_request_goes_first():
    driver = Driver(workers=1)
    driver.request("a", urgency=Urgency.PREFETCH, opens=False)
    later = driver.request("b", urgency=Urgency.PREFETCH, opens=False)
    driver.machine.promote(later, Urgency.DEMAND)
    assert driver.step().transfer.key == key("b")
    driver.machine.promote(later, Urgency.WARM)
    assert later.urgency is Urgency.DEMAND


def test_predictions_wait_for_their_budget():
    driver = Driver(prefetch_bytes_per_s=CHUNK, workers=8)
    driver.request("a", urgency=Urgency.PREFETCH, opens=False)
    driver.answer(driver.step(StepKind.ASK), 4 * CHUNK)
    assert [step.chunk for step in iter(driver.step, None)] == [0, 1]  # one second's worth, and one chunk on credit
    assert driver.machine.wake_s == pytest.approx(1.0)
    driver.now = 1.5
    assert driver.step(StepKind.CHUNK).chunk == 2


def test_a_quarter_of_the_workers_is_not_for_one_link():
    driver = Driver(workers=4)
    driver.request("a")
    driver.answer(driver.step(StepKind.ASK), 5 * CHUNK)
    assert len(list(iter(driver.step, None))) == 3
    driver.request("b", origin=StubOrigin("other", "other"))
    assert driver.step(StepKind.ASK).transfer.key == key("b")


# --- failures -------------------------------------------------------------------------------------------------


def test_a_failed_chunk_is_retried_after_a_while_and_a_few_times():
    driver = Driver()
    request = driver.request("a")
    entry = driver.answer(driver.step(StepKind.ASK), CHUNK)
    for wait_s in RETRY_S:
        driver.fail(driver.step(StepKind.CHUNK), OriginError("down"))
        assert driver.step() is None
        assert driver.machine.wake_s == driver.now + wait_s
        driver.now += wait_s
    assert len(RETRY_S) == MAX_FAILURES
    driver.fail(driver.step(StepKind.CHUNK), OriginError("down"))
    assert errors_of(driver.decisions()) == [(request, OriginError)]
    assert (entry.dropped, driver.machine.space.used_bytes) == (True, 0)


def test_a_file_that_changes_during_its_transfer_begins_again_a_few_times():
    driver = Driver()
    request = driver.request("a")
    for version in range(MAX_CHANGES + 1):
        assert driver.decisions() == [] or version
        driver.answer(driver.step(StepKind.ASK), CHUNK, str(version))
        driver.fail(driver.step(StepKind.CHUNK), ChangedError("changed"))
    assert (request, ChangedError) in errors_of(driver.decisions())
    assert driver.machine.transfers == {}


def test_a_file_that_the_origin_no_longer_has_leaves_the_cache():
    driver = Driver(revalidate_s=5)
    entry = driver.cached("a")
    driver.now = 6.0
    request = driver.request("a")
    driver.fail(driver.step(StepKind.ASK), AbsentError("gone"))
    removed, failed = driver.decisions()
    assert (removed, failed.request) == (RemoveFile(entry), request)


def test_a_cached_file_is_served_unchecked_when_its_origin_fails_or_is_silent():
    driver = Driver(revalidate_s=5, patience_s=2)
    entry = driver.cached("a")
    driver.now = 6.0
    request = driver.request("a")
    driver.fail(driver.step(StepKind.ASK), OriginError("down"))
    assert driver.decisions() == [HandOver(request, entry, Found.CACHED, 0.0)]
    request = driver.request("a")
    step = driver.step(StepKind.ASK)
    assert not driver.machine.step_silent(step, 1.0, now=7.0)
    assert driver.machine.step_silent(step, 2.5, now=8.5)
    assert driver.decisions() == [HandOver(request, entry, Found.CACHED, 2.5)]
    driver.now = 9.0  # the silent link is not asked again so soon
    driver.request("a")
    assert (driver.step(), driver.machine.stats().datasets["d"].unchecked) == (None, 3)


def test_a_transfer_whose_origin_is_silent_for_too_long_fails():
    driver = Driver(stall_s=60)
    request = driver.request("a")
    step = driver.step(StepKind.ASK)
    assert not driver.machine.step_silent(step, 59.0, now=59.0)
    assert driver.machine.step_silent(step, 60.0, now=60.0)
    assert errors_of(driver.decisions()) == [(request, OriginError)]


def test_closing_fails_every_request():
    driver = Driver()
    requests = [driver.request("a"), driver.request("b")]
    driver.machine.fail_all(now=driver.now)
    assert errors_of(driver.decisions()) == [(request, CacheRefusedError) for request in requests]


# --- space ----------------------------------------------------------------------------------------------------


def test_space_is_made_by_evicting_idle_files_and_never_open_ones():
    driver = Driver(limit_bytes=6 * CHUNK)
    idle = driver.cached("idle")
    driver.now = 1.0
    driver.cached("open")
    driver.request("open")
    driver.decisions()
    driver.request("new")
    driver.answer(driver.step(StepKind.ASK), 3 * CHUNK)
    assert driver.decisions() == [RemoveFile(idle)]


def test_a_prediction_gives_way_to_a_demanded_file():
    driver = Driver(limit_bytes=5 * CHUNK)
    predicted = driver.request("predicted", urgency=Urgency.PREFETCH, opens=False)
    driver.answer(driver.step(StepKind.ASK), 3 * CHUNK)
    driver.request("demanded")
    driver.answer(driver.step(StepKind.ASK), 3 * CHUNK)
    assert errors_of(driver.decisions()) == [(predicted, RoomError)]


def test_a_file_larger_than_the_cache_frees_its_oldest_chunk_for_the_next():
    driver = Driver(limit_bytes=2 * CHUNK)
    entry = driver.opened(6 * CHUNK)
    for chunk in range(2):
        driver.read(entry, chunk * CHUNK, 1)
        driver.fetch(driver.step(StepKind.CHUNK))
    driver.decisions()
    waiting = driver.read(entry, 2 * CHUNK, 1)
    step = driver.step(StepKind.CHUNK)
    free = driver.machine.reserve_chunk(step, can_free=True, now=driver.now)
    assert free == FreeChunk(entry, 0)
    driver.machine.chunk_freed(free)
    driver.fetch(step)
    assert driver.decisions() == [ServeRead(waiting, entry, 1)]
    assert driver.machine.space.used_bytes == 2 * CHUNK


def test_where_chunks_cannot_be_freed_the_read_fails():
    driver = Driver(limit_bytes=CHUNK)
    entry = driver.opened(6 * CHUNK)
    driver.read(entry, 0, 1)
    driver.fetch(driver.step(StepKind.CHUNK))
    driver.decisions()
    waiting = driver.read(entry, CHUNK, 1)
    step = driver.step(StepKind.CHUNK)
    assert driver.machine.reserve_chunk(step, can_free=False, now=driver.now) is False
    assert errors_of(driver.decisions()) == [(waiting, RoomError)]


def test_a_full_disk_evicts_and_retries_at_once():
    driver = Driver()
    idle = driver.cached("idle")
    driver.request("new")
    driver.answer(driver.step(StepKind.ASK), CHUNK)
    step = driver.step(StepKind.CHUNK)
    assert driver.machine.disk_full(step, DISK_FULL, can_free=True, now=driver.now) is None
    assert driver.decisions() == [RemoveFile(idle)]
    assert driver.step(StepKind.CHUNK).chunk == step.chunk


def test_a_full_disk_with_nothing_to_remove_fails_the_request():
    driver = Driver()
    request = driver.request("new")
    driver.answer(driver.step(StepKind.ASK), CHUNK)
    driver.machine.disk_full(driver.step(StepKind.CHUNK), DISK_FULL, can_free=True, now=driver.now)
    assert (request, RoomError) in errors_of(driver.decisions())


def test_a_complete_file_frees_none_of_its_own_chunks_for_the_index():
    """It would be committed with a chunk missing."""
    driver = Driver()
    entry = driver.opened(6 * CHUNK)
    driver.read(entry, 0, 6 * CHUNK)
    while (step := driver.step()).kind is StepKind.CHUNK:
        driver.fetch(step)
    assert step.kind is StepKind.COMMIT
    assert driver.machine.disk_full(step, DISK_FULL, can_free=True, now=driver.now) is None
    driver.machine.step_ended(step, now=driver.now)
    assert entry.complete
    assert driver.step() is None


# --- reading in parts -----------------------------------------------------------------------------------------


def test_a_large_file_is_handed_over_before_its_first_chunk_and_read_by_chunks():
    driver = Driver()
    entry = driver.opened(6 * CHUNK)
    assert driver.step() is None
    waiting = driver.read(entry, 250, 100)
    steps = list(iter(driver.step, None))
    assert [step.chunk for step in steps] == [2, 3]  # awaited chunks start at once
    driver.fetch(steps[1])
    assert driver.decisions() == []
    driver.fetch(steps[0])
    assert driver.decisions() == [ServeRead(waiting, entry, 0)]
    again = driver.read(entry, 310, 10)
    assert driver.decisions() == [ServeRead(again, entry, 0)]


def test_a_sequential_reader_has_the_next_chunks_fetched_until_it_closes():
    driver = Driver()
    entry = driver.opened(6 * CHUNK)
    driver.read(entry, 0, 10, is_sequential=True)
    driver.fetch(driver.step(StepKind.CHUNK))
    ahead = driver.step(StepKind.CHUNK)
    assert ahead.chunk == 1
    driver.machine.handle_closed(entry, now=driver.now)
    driver.machine.step_ended(ahead, now=driver.now)
    assert (driver.step(), driver.machine.transfers) == (None, {})


def test_chunks_of_a_prediction_are_confirmed_before_they_are_read():
    driver = Driver()
    driver.request("a", urgency=Urgency.PREFETCH, opens=False)
    entry = driver.answer(driver.step(StepKind.ASK), 6 * CHUNK)
    driver.fetch(driver.step(StepKind.CHUNK), is_confirmed=False)
    driver.request("a")
    driver.decisions()
    waiting = driver.read(entry, 0, 10)
    assert driver.decisions() == []
    driver.machine.confirmed(driver.step(StepKind.CONFIRM), {0}, now=driver.now)
    assert driver.decisions() == [ServeRead(waiting, entry, 0)]


def test_a_read_of_a_dropped_version_fails():
    driver = Driver()
    entry = driver.opened(6 * CHUNK)
    driver.machine.remove_dataset("d", now=driver.now)
    read = driver.read(entry, 0, 10)
    removed, failed = driver.decisions()
    assert (removed, failed.request, type(failed.error)) == (RemoveFile(entry), read, ChangedError)
