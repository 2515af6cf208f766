"""The transfer machine of the node cache under random sequences of events."""

import random

import pytest
from transfer_driver import CHUNK, ORIGIN, Driver, key

from aliquot.storage.cache.records import Urgency
from aliquot.storage.cache.transfers.decisions import FailRequest, FreeChunk, HandOver, RemoveFile
from aliquot.storage.cache.transfers.transfer import FileRequest, ReadRequest, StepKind
from aliquot.storage.errors import AbsentError, ChangedError, OriginError


@pytest.mark.parametrize("seed", range(60))
def test_every_request_is_answered_once_and_the_bytes_add_up(seed):
    chance = random.Random(seed)
    driver = Driver(limit_bytes=8 * CHUNK, revalidate_s=chance.choice([0.0, 5.0]))
    open_requests, handles, removed = {}, [], []
    for _ in range(300):
        driver.now += chance.random()
        _random_event(driver, chance, open_requests, handles)
        for decision in driver.decisions():
            if isinstance(decision, RemoveFile):
                removed.append(decision.entry)
                continue
            del open_requests[decision.request]  # a second answer would raise
            if isinstance(decision, HandOver) and decision.request.opens:
                driver.machine.handed_over(decision, now=driver.now)
                handles.append(decision.entry)
        _check_bytes(driver.machine, handles)
    assert len(set(removed)) == len(removed)
    driver.machine.fail_all(now=driver.now)
    assert {decision.request for decision in driver.decisions() if isinstance(decision, FailRequest)} == set(
        open_requests
    )


def _random_event(driver, chance, open_requests, handles):
    draw = chance.random()
    if draw < 0.2:
        request = FileRequest(
            key(chance.choice("abcdef")), ORIGIN, chance.choice(list(Urgency)), opens=chance.random() < 0.6, now=0.0
        )
        open_requests[request] = None
        driver.machine.request(request, now=driver.now)
    elif draw < 0.3 and handles:
        entry = chance.choice(handles)
        read = ReadRequest(entry.key, ORIGIN, chance.randrange(entry.listed.size), chance.randrange(3 * CHUNK))
        open_requests[read] = None
        driver.machine.read(entry, read, is_sequential=chance.random() < 0.5, now=driver.now)
    elif draw < 0.4 and handles:
        driver.machine.handle_closed(handles.pop(chance.randrange(len(handles))), now=driver.now)
    elif draw < 0.45 and open_requests:
        request = chance.choice(list(open_requests))
        del open_requests[request]
        driver.machine.cancel(request, now=driver.now)
    elif draw < 0.46:
        driver.machine.drop_unused(None, now=driver.now)
    elif (step := driver.step()) is not None:
        _random_outcome(driver, chance, step)
        driver.machine.step_ended(step, now=driver.now)


def _random_outcome(driver, chance, step):
    draw = chance.random()
    if draw < 0.1:
        error = chance.choice([OriginError("down"), ChangedError("changed"), AbsentError("absent")])
        if step.kind is not StepKind.CHUNK or driver.machine.reserve_chunk(step, can_free=False, now=driver.now):
            driver.machine.step_failed(step, error, now=driver.now)
    elif step.kind is StepKind.ASK:
        size = CHUNK * (1 + ord(step.transfer.key.path) % 12)
        driver.answer(step, size, chance.choice("1112"), is_asked=chance.random() < 0.5)
    elif step.kind is StepKind.CHUNK:
        while isinstance(answer := driver.machine.reserve_chunk(step, can_free=True, now=driver.now), FreeChunk):
            driver.machine.chunk_freed(answer)
        if answer:
            driver.arrive(step, is_confirmed=chance.random() < 0.7)
    elif step.kind is StepKind.CONFIRM:
        driver.machine.confirmed(step, set(step.transfer.entry.unconfirmed), now=driver.now)
    else:
        driver.machine.committed(step, now=driver.now)


def _check_bytes(machine, handles):
    space = machine.space
    running = [transfer.entry for transfer in machine.transfers.values() if transfer.entry is not None]
    entries = {id(entry): entry for entry in [*space.entries.values(), *handles, *running]}.values()
    assert space.used_bytes == sum(entry.disk_bytes + entry.reserved_bytes for entry in entries)
    assert 0 <= space.used_bytes <= space.limit_bytes
    assert machine.stats().open == len(handles)
    for entry in space.entries.values():
        present_bytes = sum(entry.span(chunk)[1] for chunk in entry.digests)
        assert 0 <= entry.reserved_bytes <= entry.listed.size - present_bytes
        transfer = machine.transfers.get(entry.key)  # no step of it runs while this is checked
        assert entry.reserved_bytes == 0 or (entry.busy and transfer.is_reserved)
        assert not entry.idle or (entry.pins == 0 and not entry.busy)
