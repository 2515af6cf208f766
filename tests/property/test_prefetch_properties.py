"""Properties of the prefetcher under random predictions: snapshots give the same commands, and nothing is left over."""

from hypothesis import given
from hypothesis import strategies as st

from aliquot.config import PolicySettings
from aliquot.core.commands import CancelFetch, Fetch
from aliquot.core.events import (
    DatasetRemoved,
    FetchEnded,
    FilesPredicted,
    FunctionDeployed,
    FunctionRemoved,
    InvocationArrived,
    InvocationCancelled,
    LikelyFile,
    SessionBegan,
    SessionEnded,
)
from aliquot.core.units import MIB
from aliquot.live.invocations.journal import snapshot
from aliquot.policies.prefetching import PREFETCHING
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.fabric.predictors import PREDICTORS
from aliquot.sim.fabric.storage import StorageSettings
from aliquot.sim.report import report
from aliquot.testing import Harness, device, function
from aliquot.testing.harness import of_type

TENANTS, SESSIONS = ("ann", "bob", "eve"), ("s", "t", "function/reader")

audiences = st.tuples(st.sampled_from(TENANTS), st.sampled_from(SESSIONS))
files = st.builds(
    LikelyFile,
    st.sampled_from(["d", "e"]),
    st.sampled_from(["1", "2", "3"]),
    st.sampled_from([0, MIB, 2 * MIB, 20 * MIB]),
    st.sampled_from([0.3, 0.75, 0.8, 1.0]),
)
predictions = st.builds(
    lambda whose, model, listed: FilesPredicted(*whose, model, tuple(listed)),
    audiences,
    st.sampled_from(["markov1", "lstm"]),
    st.lists(files, max_size=6),
)
ends = st.tuples(st.just("end"), st.integers(0, 10), st.sampled_from(["", "", "the origin is down"]))
happenings = st.one_of(
    predictions,
    predictions,
    ends,
    ends,
    st.builds(lambda whose: SessionBegan(*whose), audiences),
    st.builds(lambda whose: SessionEnded(*whose), audiences),
    st.builds(
        lambda tenant: FunctionDeployed(tenant, function("reader", datasets=("d", "e"))), st.sampled_from(TENANTS)
    ),
    st.builds(lambda tenant: FunctionDeployed(tenant, function("reader", datasets=("e",))), st.sampled_from(TENANTS)),
    st.builds(DatasetRemoved, st.sampled_from(["d", "e"])),
)


def start():
    params = {"threshold": {"budget_mib": "8", "at_once": "3", "top_n": "4"}}
    harness = Harness(devices=[device()], params=params)
    for tenant in TENANTS:
        harness.send(FunctionDeployed(tenant, function("reader", datasets=("d", "e"))), SessionBegan(tenant, "s"))
        # The call only creates the audience of calls without a session.
        harness.send(InvocationArrived(tenant, tenant, "reader"), InvocationCancelled(tenant))
    return harness


@given(moments=st.lists(st.tuples(st.sampled_from([0, 0.5, 30]), st.lists(happenings, max_size=4)), max_size=30))
def test_every_fetch_ends_once_and_nothing_is_left_over(moments):
    harness = start()
    under_way, cancelled = {}, set()

    def send(events, at):
        known = []
        for event in events:
            if isinstance(event, tuple):
                numbers = sorted(under_way)
                if not numbers:
                    continue
                number = numbers[event[1] % len(numbers)]
                del under_way[number]
                event = FetchEnded(number, 0.1, event[2])  # noqa: PLW2901 - made concrete
            known.append(event)
        again = snapshot.restore(snapshot.read(snapshot.take(harness.scheduler, PolicySettings(""), now_ms=0)))
        commands = harness.send(*known, at=at)
        assert again.step(at, known) == commands
        for command in of_type(Fetch, commands):
            assert command.fetch not in under_way
            assert (command.dataset, command.path) not in under_way.values()
            under_way[command.fetch] = (command.dataset, command.path)
        for command in of_type(CancelFetch, commands):
            assert command.fetch in under_way
            assert command.fetch not in cancelled
            cancelled.add(command.fetch)

    now = 0
    for wait_s, events in moments:
        now += wait_s
        send(events, now)
    gone = [SessionEnded(tenant, session) for tenant in TENANTS for session in SESSIONS]
    send([*gone, *(FunctionRemoved(tenant, "reader") for tenant in TENANTS)], now)
    assert set(under_way) <= cancelled
    while under_way:
        send([("end", 0, "")], now)
    assert not harness.scheduler.prefetcher.node_of
    for prefetcher in harness.scheduler.prefetcher.by_node.values():
        assert not prefetcher.audiences
        assert not prefetcher.files
        assert not prefetcher.queue.tenants
        assert not prefetcher.queue.bytes


SIZES = {("d", "1"): MIB, ("d", "2"): 30 * MIB, ("d", "3"): 0, ("e", "1"): 8 * MIB, ("e", "2"): 100 * MIB}


@given(
    arrivals=st.lists(
        st.builds(
            lambda time_s, tenant, session, reads: Arrival(
                time_s, "reader", tenant, session=session, reads=tuple("/".join(key) for key in reads)
            ),
            st.sampled_from([0, 0, 0.1, 1, 2, 5, 20]),
            st.sampled_from(TENANTS),
            st.sampled_from([None, "s", "t"]),
            st.lists(st.sampled_from(sorted(SIZES)), max_size=4),
        ),
        max_size=20,
    ),
    cache_bytes=st.sampled_from([0, 40 * MIB, 2**40]),
    predictor=st.sampled_from(PREDICTORS),
    lead_s=st.sampled_from([0, 1, 10]),
    theta=st.sampled_from(["0.1", "0.75"]),
)
def test_a_simulated_call_has_all_its_files_and_every_byte_is_accounted_for(
    arrivals, cache_bytes, predictor, lead_s, theta
):
    storage = StorageSettings(SIZES, 10 * MIB, 0.1, cache_bytes, "lru", predictor, lead_s)
    functions = {"reader": function("reader", datasets=("d", "e"))}
    workload = ListedWorkload(arrivals)
    for prefetching in PREFETCHING:
        scenario = Scenario([device(concurrency=4)], functions, workload, check=True, storage=storage)
        own = {"threshold": {"theta": theta, "keep": "0.1", "budget_mib": "60"}}
        recorder = simulate(scenario, PolicySettings("fcfs", params=own, prefetching=prefetching))
        figures = report("", 0, recorder, scenario.devices)
        assert figures.completed == len(arrivals)
        data = figures.data
        assert sum(data.opened.values()) == sum(len(arrival.reads) for arrival in arrivals)
        assert 0 <= data.wasted_bytes <= data.prefetched_bytes <= data.moved_bytes
        assert prefetching != "none" or not data.prefetched_bytes
        assert data.hidden is None or 0 <= data.hidden <= 1
