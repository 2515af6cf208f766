"""Who goes when room is short, and how long what is idle stays."""

from aliquot.core.commands import LoadMemory, StopSandbox, UnloadMemory
from aliquot.core.events import Woke
from aliquot.core.interfaces import Params
from aliquot.policies.eviction.cost_aware import CostAware
from aliquot.policies.eviction.gdsf import Gdsf
from aliquot.policies.eviction.lru import Lru
from aliquot.testing import Harness, device, function
from aliquot.testing.harness import of


class Entry:
    def __init__(self, number, *, size=1, reload_s=1, next_use_s=1, uses=1):
        self.id, self.bytes, self.reload_s, self.uses = number, size, reload_s, uses
        self._next = next_use_s

    def next_use_s(self, now):
        return None if self._next is None else max(0, self._next - now)


def victims(policy, entries, now=0):
    for entry in entries:
        policy.add(entry, now=0)
    gone = []
    while (victim := policy.victim(now=now)) is not None:
        policy.remove(victim)
        gone.append(victim.id)
    return gone


def test_lru_goes_by_last_use():
    policy = Lru(Params())
    first, second = Entry(1), Entry(2)
    assert victims(policy, [first, second, first]) == [2, 1]


def test_cost_aware_keeps_what_is_dear_soon_needed_and_small():
    cheap, dear = Entry(1, reload_s=1), Entry(2, reload_s=5)
    soon, late = Entry(3, next_use_s=0.5), Entry(4, next_use_s=50)
    small, large = Entry(5, size=1), Entry(6, size=10)
    assert victims(CostAware(Params()), [dear, cheap]) == [1, 2]
    assert victims(CostAware(Params()), [soon, late]) == [4, 3]
    assert victims(CostAware(Params()), [small, large]) == [6, 5]
    assert victims(CostAware(Params()), [soon, Entry(7, next_use_s=None)]) == [7, 3]


def test_cost_aware_looks_again_as_time_passes():
    soon_now, soon_later = Entry(1, next_use_s=1), Entry(2, next_use_s=100)
    policy = CostAware(Params())
    for entry in (soon_now, soon_later):
        policy.add(entry, now=0)
    assert policy.victim(now=0) is soon_later
    soon_now._next = 300
    assert policy.victim(now=99) is soon_now


def test_gdsf_goes_by_frequency_cost_and_size_and_ages():
    rare, often = Entry(1, uses=1), Entry(2, uses=9)
    assert victims(Gdsf(Params()), [often, rare]) == [1, 2]
    policy = Gdsf(Params())
    once_popular = Entry(3, uses=5)
    policy.add(once_popular, now=0)
    for number in range(10, 20):
        newcomer = Entry(number, uses=2)
        policy.add(newcomer, now=0)
        victim = policy.victim(now=0)
        policy.remove(victim)
        if victim is once_popular:
            return
    raise AssertionError("what was popular once never went")


def test_eviction_orders_stay_in_proportion_to_what_they_hold():
    for policy in (CostAware(Params()), Gdsf(Params())):
        entry = Entry(1)
        for moment in range(1000):
            policy.add(entry, now=moment)
            policy.remove(entry)
        assert len(policy._heap) < 200


def idle(keepalive, moments, params=None):
    harness = Harness(devices=[device()], functions=[function("f")], keepalive=keepalive, params=params)
    for moment in moments:
        harness.now = moment
        harness.run_all(harness.call("f"))
    return harness


def test_adaptive_gives_a_regular_flow_little_more_than_its_gap():
    harness = idle("adaptive", range(0, 1000, 10))
    assert not of(UnloadMemory, harness.log)
    assert not of(UnloadMemory, harness.send(Woke(), at=999))
    assert of(UnloadMemory, harness.send(Woke(), at=1003))


def test_adaptive_gives_an_irregular_flow_more_time():
    harness = idle("adaptive", [0, 1, 30, 31, 60, 61, 90, 91])
    assert not of(UnloadMemory, harness.send(Woke(), at=91 + 40))
    assert of(UnloadMemory, harness.send(Woke(), at=91 + 120))


def test_hybrid_histogram_frees_memory_brings_it_back_in_time_and_stops_in_the_end():
    harness = idle("hybrid_histogram", range(0, 6000, 600))
    assert of(UnloadMemory, harness.log)  # it is idle for ten minutes each time
    assert not of(StopSandbox, harness.log)
    last = 5400
    assert not of(LoadMemory, harness.send(Woke(), at=last + 500))
    assert of(LoadMemory, harness.send(Woke(), at=last + 540))  # 600 x 0.9
    assert not of(StopSandbox, harness.send(Woke(), at=last + 650))
    assert of(StopSandbox, harness.send(Woke(), at=last + 726))  # 660 x 1.1


def test_hybrid_histogram_waits_the_whole_range_until_it_knows():
    harness = idle("hybrid_histogram", [0, 600])
    assert not of(StopSandbox, harness.send(Woke(), at=600 + 4 * 3600 - 1))
    assert of(StopSandbox, harness.send(Woke(), at=600 + 4 * 3600))
