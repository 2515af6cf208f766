"""Sessions keep their sandboxes, within limits, and never get a worse start for it."""

import pickle

import pytest
from msgspec.msgpack import decode, encode
from msgspec.structs import replace

from aliquot.core.commands import Dispatch, Start, StopSandbox, UnloadMemory
from aliquot.core.events import Event, FunctionDeployed, HostMemorySet, InvocationArrived, SessionEnded, Woke
from aliquot.core.model import DEFAULT_TENANT
from aliquot.core.units import GIB
from aliquot.policies.queueing import QUEUEING
from aliquot.testing import Harness, device, function
from aliquot.testing.harness import of_type


def begin(harness, *sessions, name="f"):
    """Make one call of each session at once, and return their sandboxes once all have ended."""
    commands = []
    for session in sessions:
        commands += harness.call(name, session=session)
    harness.run_all(commands)
    return [dispatch.sandbox for dispatch in of_type(Dispatch, commands)]


def serve(harness, session=None, name="f"):
    (sandbox,) = begin(harness, session, name=name)
    return sandbox


def ended(harness, session="a"):
    return harness.send(SessionEnded(DEFAULT_TENANT, session))


@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_a_session_gets_the_sandbox_that_served_it_last(policy):
    harness = Harness(policy, devices=[device(concurrency=2)], functions=[function(share=0.5)])
    of_a, of_b = begin(harness, "a", "b")
    assert of_a != of_b
    for session, expected in [("a", of_a), ("b", of_b), ("b", of_b), ("a", of_a), ("a", of_a), ("b", of_b)]:
        assert serve(harness, session) == expected


def test_a_new_session_takes_a_free_sandbox_before_one_kept_for_another():
    harness = Harness(devices=[device(concurrency=3)], functions=[function()])
    nobodys, of_a = begin(harness, None, "a")
    assert serve(harness) == nobodys
    assert serve(harness, "b") == nobodys
    # All sandboxes are kept now. A warm start in the least recently used is better than a cold one.
    commands = harness.call("f")
    (dispatch,) = of_type(Dispatch, commands)
    assert (dispatch.sandbox, dispatch.start) == (of_a, Start.WARM)


def test_a_session_is_not_worth_a_swap_in():
    harness = Harness("mqfq_sticky", devices=[device(concurrency=2, memory_bytes=4 * GIB)], functions=[function()])
    of_a, of_b = begin(harness, "a", "b")
    harness.scheduler.pool.stop_keeping(harness.scheduler.pool.sandboxes[of_a], now=harness.now)
    harness.scheduler.pool.expire(harness.scheduler.pool.sandboxes[of_a], "swap_out")
    (dispatch,) = of_type(Dispatch, harness.call("f", session="a"))
    assert (dispatch.sandbox, dispatch.start) == (of_b, Start.WARM)


@pytest.mark.parametrize("policy", ["fair_resident", "mqfq_sticky"])
def test_the_session_decides_between_equally_good_devices(policy):
    harness = Harness(policy, devices=[device("gpu-1"), device("gpu-2")], functions=[function()])
    of_a, of_b = begin(harness, "a", "b")
    assert serve(harness, "b") == of_b
    assert serve(harness, "a") == of_a
    assert serve(harness, "b") == of_b


def test_kept_sandboxes_are_swapped_out_last():
    functions = [function(name, memory_bytes=GIB) for name in ("f", "g", "h", "i", "j")]
    harness = Harness("fcfs", devices=[device(memory_bytes=4 * GIB)], functions=functions)
    held = serve(harness, "a")
    others = [serve(harness, name=name) for name in "ghi"]
    commands = harness.call("j")
    assert [command.sandbox for command in of_type(UnloadMemory, commands)] == [others[0]]
    harness.run_all(commands)
    big = function("big", memory_bytes=4 * GIB)
    harness.send(FunctionDeployed(DEFAULT_TENANT, big))
    swapped_out = [command.sandbox for command in of_type(UnloadMemory, harness.call("big"))]
    assert swapped_out[-1] == held
    assert len(swapped_out) == 4


def test_sessions_keep_at_most_half_a_device_and_lose_the_least_recent():
    names = [f"f{number}" for number in range(6)]
    functions = [function(name, memory_bytes=GIB) for name in names]
    harness = Harness("fcfs", devices=[device(memory_bytes=4 * GIB)], functions=functions)
    sandboxes = [serve(harness, "a", name=name) for name in names[:4]]
    assert sorted(harness.scheduler.registry.nodes[""].host.kept) == sandboxes[2:]
    (swapped_out,) = of_type(UnloadMemory, harness.call("f4"))
    assert swapped_out.sandbox == sandboxes[0]


def test_a_sandbox_larger_than_half_a_device_is_not_kept_and_displaces_none():
    functions = [function("small", memory_bytes=GIB), function("large", memory_bytes=3 * GIB)]
    harness = Harness("fcfs", devices=[device(memory_bytes=4 * GIB)], functions=functions)
    small = serve(harness, "a", name="small")
    serve(harness, "b", name="large")
    assert list(harness.scheduler.registry.nodes[""].host.kept) == [small]


def test_a_pool_slot_is_taken_from_a_session_last():
    functions = [function(name, memory_bytes=1) for name in "fghi"]
    params = {"mqfq_sticky": {"pool_slots": "3"}}
    harness = Harness("mqfq_sticky", devices=[device()], functions=functions, params=params, keepalive="none")
    held = serve(harness, "a")
    second = serve(harness, name="g")
    serve(harness, name="h")
    stopped = of_type(StopSandbox, harness.call("i"))
    assert [command.sandbox for command in stopped] == [second]
    assert held in harness.scheduler.pool.sandboxes


def test_the_hosts_memory_is_taken_from_a_session_last_and_at_most_half_is_kept():
    hungry = [replace(function(name, share=0), host_bytes=GIB) for name in "fghijk"]
    harness = Harness("fcfs", devices=[device("cpu", kind="cpu", memory_bytes=None)])
    harness.send(HostMemorySet(4 * GIB))
    harness.send(*(FunctionDeployed(DEFAULT_TENANT, spec) for spec in hungry))
    first, second, third = (serve(harness, "a", name=name) for name in "fgh")
    assert list(harness.scheduler.registry.nodes[""].host.kept) == [second, third]
    fourth = serve(harness, name="i")
    stopped = [command.sandbox for name in "jk" for command in of_type(StopSandbox, begin_commands(harness, name))]
    assert stopped == [first, fourth]


def begin_commands(harness, name):
    commands = harness.call(name)
    harness.run_all(commands)
    return commands


def test_keep_alive_does_not_apply_to_kept_sandboxes_until_the_session_ends():
    harness = Harness(
        devices=[device()], functions=[function()], keepalive="fixed_ttl", params={"fixed_ttl": {"ttl_s": "5"}}
    )
    held = serve(harness, "a")
    assert not of_type(StopSandbox, harness.send(Woke(), at=100))
    assert [command.sandbox for command in of_type(StopSandbox, ended(harness))] == [held]


def test_a_session_that_ends_before_keep_alive_does_not_shorten_it():
    harness = Harness(
        devices=[device()], functions=[function()], keepalive="fixed_ttl", params={"fixed_ttl": {"ttl_s": "5"}}
    )
    held = serve(harness, "a")
    assert not of_type(StopSandbox, harness.send(SessionEnded(DEFAULT_TENANT, "a"), at=3))
    assert [command.sandbox for command in of_type(StopSandbox, harness.send(Woke(), at=6))] == [held]


def test_keep_alive_frees_device_memory_once_the_session_has_ended():
    harness = Harness("mqfq_sticky", devices=[device()], functions=[function()])
    serve(harness, "a")
    harness.now = 1
    held = serve(harness, "a")
    assert not of_type(UnloadMemory, harness.send(Woke(), at=100))
    assert [command.sandbox for command in of_type(UnloadMemory, ended(harness))] == [held]


def test_a_use_cancels_a_deferred_expiry():
    harness = Harness(
        devices=[device()], functions=[function()], keepalive="fixed_ttl", params={"fixed_ttl": {"ttl_s": "5"}}
    )
    serve(harness, "a")
    harness.send(Woke(), at=100)
    serve(harness, "a")
    assert not of_type(StopSandbox, ended(harness))


def test_a_session_that_ended_while_its_call_ran_keeps_nothing():
    harness = Harness(devices=[device()], functions=[function()])
    commands = harness.call("f", session="a")
    ended(harness)
    harness.run_all(commands)
    assert not harness.scheduler.registry.nodes[""].host.kept
    assert not harness.scheduler.pool.session_sandboxes.sessions


def test_the_end_of_a_session_without_calls_is_ignored():
    harness = Harness(devices=[device()], functions=[function()])
    assert ended(harness, "unheard of") == []


def test_sessions_of_the_same_name_in_two_tenants_are_separate():
    harness = Harness(devices=[device()])
    harness.send(*(FunctionDeployed(tenant, function()) for tenant in ("ann", "bob")))
    for tenant in ("ann", "bob"):
        harness.run_all(harness.call("f", tenant=tenant, session="a"))
    harness.send(SessionEnded("ann", "a"))
    assert [sandbox.flow.key.tenant for sandbox in harness.scheduler.registry.nodes[""].host.kept.values()] == ["bob"]


def test_a_newer_version_stops_kept_sandboxes():
    harness = Harness(devices=[device()], functions=[function()])
    held = serve(harness, "a")
    stopped = of_type(StopSandbox, harness.send(FunctionDeployed(DEFAULT_TENANT, function(run_s=2))))
    assert [command.sandbox for command in stopped] == [held]
    assert not harness.scheduler.registry.nodes[""].host.kept


def test_a_snapshot_includes_kept_sandboxes():
    harness = Harness("fair_resident", devices=[device(concurrency=2)], functions=[function(share=0.5)])
    of_a, of_b = begin(harness, "a", "b")
    harness.scheduler = pickle.loads(pickle.dumps(harness.scheduler))  # noqa: S301 - our own
    assert serve(harness, "a") == of_a
    assert serve(harness, "b") == of_b


def test_an_arrival_from_before_sessions_existed_is_read():
    old = encode({"type": "InvocationArrived", "invocation": "i", "tenant": "t", "function": "f"})
    assert decode(old, type=Event) == InvocationArrived("i", "t", "f", session=None)
