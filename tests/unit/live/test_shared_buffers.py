"""Shared buffers: sealing, refusals, and that no memory is left behind."""

import gc
import mmap
import os
import pickle
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from aliquot.budgets import MappingBudget
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.gateway.invocation.exchange import shared_arguments
from aliquot.live.invocations.call import Call, SharedArguments
from aliquot.live.invocations.call_finisher import CallFinisher
from aliquot.live.node.base import Outcome, Status
from aliquot.live.node.shared_buffers import NodeBuffers, SandboxBuffers, SharedBuffer, SharedBufferError
from aliquot.runtime import values

SIZES = [100_000, 70_001]
BOUND = 2**20


def a_budget(total_bytes=20 * BOUND, total_descriptors=1000):
    return MappingBudget("shared buffers", total_bytes, total_descriptors)


def a_sandbox(name="t", *, tenant="guest", memory_bytes=BOUND, budget=None, max_kept=BOUND):
    return SandboxBuffers(name, tenant, memory_bytes, budget or a_budget(), max_kept)


def filled(sandbox):
    """Fill and seal a shared buffer. Return its number and the envelope that belongs to it."""
    buffers = [memoryview(bytes([number + 1]) * size) for number, size in enumerate(SIZES)]
    number, buffer = sandbox.allocate(values.layout(SIZES)[1])
    values.fill(buffer.fd, buffers)
    sandbox.seal(number)
    return number, values.seal_envelope(b"pickle", SIZES)


def open_buffers():
    names = [str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink() and fd.exists()]
    return sum("aliquot-buffer" in name for name in names)


def test_what_is_handed_over_can_be_written_by_nobody():
    sandbox = a_sandbox()
    number, body = filled(sandbox)
    buffer = sandbox.hand_on(number, body)
    with pytest.raises(PermissionError):
        os.pwrite(buffer.fd, b"!", 0)
    with pytest.raises(PermissionError):
        mmap.mmap(buffer.fd, buffer.size)
    with pytest.raises(PermissionError):
        os.ftruncate(buffer.fd, 1)
    mine, yours = values.map_private(buffer.fd, buffer.size), values.map_private(buffer.fd, buffer.size)
    mine[0] = 9  # a copy of that page
    assert (mine[0], yours[0]) == (9, 1)


def test_what_somebody_could_still_write_to_is_not_handed_over():
    sandbox = a_sandbox()
    number, buffer = sandbox.allocate(4096)
    with mmap.mmap(buffer.fd, 4096), pytest.raises(SharedBufferError, match="still being written to"):
        sandbox.seal(number)
    os.pwrite(buffer.fd, b"x" * 4096, 0)
    sandbox.seal(number)


def test_what_was_not_written_to_its_end_is_not_handed_over():
    sandbox = a_sandbox()
    number, buffer = sandbox.allocate(100_000)
    os.pwrite(buffer.fd, b"x" * 50_000, 0)
    with pytest.raises(SharedBufferError, match="not been written to its end"):
        sandbox.seal(number)


def test_a_sandbox_has_so_many_shared_buffers_at_once_and_those_it_does_not_take_make_way():
    sandbox, other = a_sandbox(), a_sandbox("o")
    for _ in range(128):
        sandbox.allocate(4096)
    with pytest.raises(SharedBufferError, match="128 shared buffers are open already"):
        sandbox.allocate(4096)
    numbers = [other.put(SharedBuffer(4096, "guest", a_budget(), BOUND)) for _ in range(129)]
    assert open_buffers() == 256
    with pytest.raises(SharedBufferError, match="there is no shared buffer 1 to take"):
        other.take(numbers[0])
    assert other.take(numbers[1]).size == 4096


def test_a_server_without_descriptors_refuses_and_counts_no_bytes():
    budget = a_budget()
    sandbox = a_sandbox(budget=budget)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(SharedBufferError, match="Too many open files"):
            sandbox.allocate(4096)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    gc.collect()
    assert (budget.bytes.used, budget.descriptors.used) == (0, 0)


def test_a_value_has_so_many_buffers_and_further_ones_stay_in_the_pickle():
    apart = values.LargeBuffers()
    shared = bytearray(65_536)
    assert sum(not apart(pickle.PickleBuffer(shared)) for _ in range(5000)) == len(apart.views) == 4096
    with pytest.raises(ValueError, match="it takes 4096 at most"):
        values.open_envelope(values.seal_envelope(b"pickle", [1] * 4097))
    assert len(values.open_envelope(values.seal_envelope(b"pickle", [1] * 4096))[1]) == 4096


def test_a_value_put_behind_its_pickle_is_whole():
    sandbox = a_sandbox()
    number, body = filled(sandbox)
    pickled, sizes, behind = values.open_envelope(sandbox.hand_on(number, body).inlined(body))
    assert (bytes(pickled), sizes) == (b"pickle", SIZES)
    memory = values.copy_buffers(sizes, behind)
    assert [memory[span] == bytes([at + 1]) * SIZES[at] for at, span in enumerate(values.layout(sizes)[0])] == [
        True
    ] * 2


def test_bytes_wherever_they_are_travel_apart_and_come_back():
    value = {"a": [b"x" * 70_000, (b"y" * 65_536,)], "small": b"z", "n": 1}
    apart = values.LargeBuffers()
    body = pickle.dumps(values.wrap_large_bytes(value), protocol=5, buffer_callback=apart)
    assert [len(view) for view in apart.views] == [70_000, 65_536]
    assert len(body) < 1000
    assert pickle.loads(body, buffers=apart.views) == value  # noqa: S301 - our own
    assert values.wrap_large_bytes([1, (2,), {"k": b"s"}]) == [1, (2,), {"k": b"s"}]


@pytest.mark.parametrize("size", [0, -1, BOUND + 1])
def test_a_shared_buffer_that_cannot_be_is_refused(size):
    with pytest.raises(SharedBufferError):
        a_sandbox().allocate(size)
    assert open_buffers() == 0


def test_numbers_that_mean_nothing_are_refused():
    sandbox, other = a_sandbox(), a_sandbox("o")
    number, body = filled(sandbox)
    for refused in (
        lambda: other.hand_on(number, body),
        lambda: sandbox.hand_on(number + 1, body),
        lambda: sandbox.seal(number),
        lambda: sandbox.take(number),
    ):
        with pytest.raises(
            SharedBufferError, match=f"there is no shared buffer {number}|there is no shared buffer {number + 1}"
        ):
            refused()
    for cut in (body[:4], body[:20], body[:4] + b"\xff" * 12):
        with pytest.raises(ValueError, match="cut off"):
            values.open_envelope(cut)
    with pytest.raises(SharedBufferError, match="is not what the body says"):
        sandbox.hand_on(number, values.seal_envelope(b"pickle", [1]))


def test_a_sandbox_that_closes_leaves_nothing():
    budget = a_budget()
    node = NodeBuffers(budget, BOUND)
    sandbox = node.open("guest", BOUND)
    sandbox.allocate(10_000)
    number, body = filled(sandbox)
    sandbox.put(sandbox.hand_on(number, body))
    assert open_buffers() == 2
    node.close(sandbox)
    gc.collect()
    assert (open_buffers(), budget.bytes.used, node.find(sandbox.token)) == (0, 0, None)
    _, buffer = node.open("guest", BOUND).allocate(5000)
    sandbox.put(buffer)  # the sandbox has gone and will not take it
    del buffer


def test_the_gateway_takes_a_shared_buffer_from_the_sandbox_that_the_request_names():
    node = NodeBuffers(a_budget(), BOUND)
    sandbox = node.open("guest", BOUND)
    number, body = filled(sandbox)
    kind = f"application/x-aliquot-pickle; sandbox={sandbox.token}".encode()

    def taken(content_type):
        arguments = shared_arguments(content_type, body, node)
        return arguments.reply_buffers, arguments.buffer

    assert taken(kind) == (sandbox, None)
    assert taken(b"application/x-aliquot-pickle; sandbox=" + b"0" * 32) == (None, None)
    assert taken(b"application/x-aliquot-pickle; charset=x") == (None, None)
    for wrong, text in (
        (kind + b"; buffer=%d" % (number + 1), f"there is no shared buffer {number + 1}"),
        (kind.replace(sandbox.token.encode(), b"0" * 32) + b"; buffer=%d" % number, "not of this platform"),
    ):
        with pytest.raises(Refusal) as refusal:
            taken(wrong)
        assert refusal.value.status == 400
        assert text in str(refusal.value.body("t"))
    found, buffer = taken(kind + b"; buffer=%d" % number)
    assert found is sandbox
    assert buffer.size == values.layout(SIZES)[1]


def test_what_outlasts_its_callers_wait_and_is_too_large_for_the_disk_is_not_kept():
    sandbox = a_sandbox(max_kept=100_000)
    number, body = filled(sandbox)
    buffer = sandbox.hand_on(number, body)
    namespace, action = SimpleNamespace(name="guest", owner="guest"), SimpleNamespace(annotation=lambda _: True)
    resolved = SimpleNamespace(function="f", action=action)
    call = Call("0" * 32, namespace, resolved, body, pickled=True, durable=True, shared=SharedArguments(buffer=buffer))
    accepted = call.accepted(0)
    assert (accepted.payload, accepted.rerun, accepted.started) == (body, False, True)
    ledger, made = SimpleNamespace(end=lambda *_: None), []
    finisher = CallFinisher("fifo", ledger, SimpleNamespace(), lambda: 0.0)
    finisher._record = lambda _call, outcome, _ended_s, **_: made.append(outcome)
    finisher.finish(call, Outcome(Status.SUCCESS, b"{}", 0.0, (), body, shared_buffer=buffer))
    assert made[0].status is Status.APPLICATION_ERROR
    assert made[0].pickled is made[0].shared_buffer is None
    assert b"exceeded the allowed length" in made[0].result


def test_shared_buffers_count_within_the_memory_limit_of_their_sandbox():
    sandbox = a_sandbox(memory_bytes=100_000)
    number, _ = sandbox.allocate(60_000)
    with pytest.raises(SharedBufferError, match="as its memory limit, 100000; it holds 60000 and asks for 40001 more"):
        sandbox.allocate(40_001)
    sandbox.drop(number)
    sandbox.allocate(100_000)


def test_a_tenant_gets_a_part_of_the_bytes_and_of_the_descriptors_and_leaves_the_rest_to_others():
    budget = a_budget(total_bytes=40_000, total_descriptors=100)
    greedy, neighbour = a_sandbox(budget=budget), a_sandbox("o", tenant="neighbour", budget=budget)
    greedy.allocate(20_000)
    with pytest.raises(SharedBufferError, match="it may hold 20000 while other namespaces hold 0 of 40000"):
        greedy.allocate(1)
    neighbour.allocate(10_000)
    greedy.end_run()
    greedy.begin_run()
    for _ in range(49):
        greedy.allocate(1)  # empty ones count
    with pytest.raises(SharedBufferError, match="holds 49 descriptors and asks for 1 more; it may hold 49"):
        greedy.allocate(1)
    neighbour.allocate(1)


def test_a_sandbox_has_no_shared_buffers_between_runs():
    budget = a_budget()
    sandbox = a_sandbox(budget=budget)
    sandbox.allocate(1000)
    filled(sandbox)
    sandbox.put(SharedBuffer(4096, "guest", budget, BOUND))
    sandbox.end_run()
    gc.collect()
    assert (open_buffers(), budget.bytes.used, budget.descriptors.used) == (0, 0, 0)
    with pytest.raises(SharedBufferError, match="for a running function, and none runs"):
        sandbox.allocate(1000)
    sandbox.put(SharedBuffer(4096, "guest", budget, BOUND))  # the answer to a call that its maker has left
    gc.collect()
    assert open_buffers() == 0
    sandbox.begin_run()
    sandbox.allocate(1000)
