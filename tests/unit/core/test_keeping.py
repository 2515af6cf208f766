"""Eviction policies and keep-alive policies."""

import pytest

from aliquot.core.commands import LoadMemory, StartSandbox, StopSandbox, UnloadMemory
from aliquot.core.events import Woke
from aliquot.core.interfaces import Params
from aliquot.policies.eviction import EVICTION
from aliquot.policies.eviction.cost_aware import CostAware
from aliquot.policies.eviction.gdsf import Gdsf
from aliquot.policies.eviction.lecar import LeCaR
from aliquot.policies.eviction.lfu import Lfu
from aliquot.policies.eviction.lru import Lru
from aliquot.policies.eviction.s3fifo import S3Fifo
from aliquot.testing import Harness, device, function
from aliquot.testing.harness import of_type


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
        policy.forget(victim)
        gone.append(victim.id)
    return gone


def use(policy, entry, now=0):
    policy.remove(entry)
    policy.add(entry, now=now)


def evict(policy):
    victim = policy.victim(now=0)
    policy.forget(victim)
    return victim.id


def test_lru_evicts_by_last_use():
    policy = Lru(Params())
    first, second = Entry(1), Entry(2)
    assert victims(policy, [first, second, first]) == [2, 1]


def test_lfu_evicts_by_number_of_uses_and_among_equals_by_last_use():
    policy = Lfu(Params())
    assert victims(policy, [Entry(1), Entry(2), Entry(3), Entry(1), Entry(3)]) == [2, 1, 3]


def test_lfu_forgets_the_uses_of_evicted_entries():
    policy, often, once = Lfu(Params()), Entry(1), Entry(2)
    for _ in range(3):
        use(policy, often)
    policy.forget(often)
    use(policy, once)
    use(policy, once)
    use(policy, often)
    assert policy.victim(now=0) is often


def filled_s3fifo(count=20):
    """Return a policy with the oldest two entries in the small queue and the others in the main queue."""
    policy, entries = S3Fifo(Params()), [Entry(number) for number in range(count)]
    for entry in entries:
        policy.add(entry, now=0)
    return policy, entries


def test_s3fifo_evicts_entries_used_once_early():
    policy, _ = filled_s3fifo()
    assert [evict(policy), evict(policy)] == [0, 1]
    newcomer = Entry(100)
    policy.add(newcomer, now=0)
    assert evict(policy) == 100  # the newest entry, which was not used again


def test_s3fifo_moves_an_entry_used_twice_more_to_the_main_queue():
    policy, entries = filled_s3fifo()
    use(policy, entries[0])
    use(policy, entries[0])
    assert evict(policy) == 1
    assert entries[0].id in policy._main


def test_s3fifo_puts_an_entry_that_comes_back_soon_into_the_main_queue():
    policy, entries = filled_s3fifo()
    assert evict(policy) == 0
    policy.add(entries[0], now=0)
    assert entries[0].id in policy._main


def test_s3fifo_gives_an_entry_used_in_the_main_queue_another_round():
    policy, entries = filled_s3fifo()
    use(policy, entries[2])
    for _ in range(2):
        evict(policy)
    assert [evict(policy), evict(policy)] == [3, 4]


def test_lecar_learns_that_frequency_is_the_better_guide_where_scans_pass_through():
    policy, loop = LeCaR(Params()), [Entry(number) for number in range(8)]
    here = {}
    for turn in range(400):
        entry = loop[turn // 4 % 4] if turn % 4 else Entry(1000 + turn)  # four entries that are used, and a scan
        if entry.id in here:
            use(policy, entry)
            continue
        if len(here) == 5:
            here.pop(evict(policy))
        here[entry.id] = entry
        policy.add(entry, now=0)
    assert policy.lru_weight < 0.5


def test_lecar_returns_the_same_victim_when_called_again():
    policy = LeCaR(Params())
    for entry in (Entry(1), Entry(1), Entry(2), Entry(3)):
        policy.add(entry, now=0)
    assert len({policy.victim(now=0).id for _ in range(10)}) == 1


@pytest.mark.parametrize("name", sorted(EVICTION))
def test_entries_in_use_are_never_victims_and_evicted_ones_are_forgotten(name):
    policy = EVICTION[name](EVICTION[name].params_type())
    entries = [Entry(number, next_use_s=None) for number in range(30)]
    for entry in entries:
        policy.add(entry, now=0)
    policy.victim(now=0)
    for entry in entries[::2]:
        policy.remove(entry)
    for _ in range(15):
        assert evict(policy) % 2
    assert policy.victim(now=0) is None
    for entry in entries[::2]:
        policy.add(entry, now=1)
    assert sorted(evict(policy) for _ in range(15)) == list(range(0, 30, 2))


def test_cost_aware_keeps_entries_that_are_expensive_soon_needed_and_small():
    cheap, dear = Entry(1, reload_s=1), Entry(2, reload_s=5)
    soon, late = Entry(3, next_use_s=0.5), Entry(4, next_use_s=50)
    small, large = Entry(5, size=1), Entry(6, size=10)
    assert victims(CostAware(Params()), [dear, cheap]) == [1, 2]
    assert victims(CostAware(Params()), [soon, late]) == [4, 3]
    assert victims(CostAware(Params()), [small, large]) == [6, 5]
    assert victims(CostAware(Params()), [soon, Entry(7, next_use_s=None)]) == [7, 3]


def test_cost_aware_computes_the_worth_again_as_time_passes():
    soon_now, soon_later = Entry(1, next_use_s=1), Entry(2, next_use_s=100)
    policy = CostAware(Params())
    for entry in (soon_now, soon_later):
        policy.add(entry, now=0)
    assert policy.victim(now=0) is soon_later
    soon_now._next = 300
    assert policy.victim(now=99) is soon_now


def test_gdsf_evicts_by_frequency_cost_size_and_age():
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


def test_eviction_orders_stay_proportional_to_their_entries():
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
    assert not of_type(UnloadMemory, harness.log)
    assert not of_type(UnloadMemory, harness.send(Woke(), at=999))
    assert of_type(UnloadMemory, harness.send(Woke(), at=1003))


def test_adaptive_gives_an_irregular_flow_more_time():
    harness = idle("adaptive", [0, 1, 30, 31, 60, 61, 90, 91])
    assert not of_type(UnloadMemory, harness.send(Woke(), at=91 + 40))
    assert of_type(UnloadMemory, harness.send(Woke(), at=91 + 120))


@pytest.mark.parametrize(
    ("unload", "frees", "readies"), [("stop", StopSandbox, StartSandbox), ("swap", UnloadMemory, LoadMemory)]
)
def test_hybrid_histogram_frees_memory_has_it_ready_in_time_and_stops_in_the_end(unload, frees, readies):
    harness = idle("hybrid_histogram", range(0, 6000, 600), {"hybrid_histogram": {"unload": unload}})
    assert of_type(frees, harness.log)  # idle for ten minutes each time
    last = 5400
    assert not of_type(readies, harness.send(Woke(), at=last + 500))
    ready = harness.send(Woke(), at=last + 540)  # 600 x 0.9
    assert of_type(readies, ready)
    harness.ready(ready)
    assert not of_type(StopSandbox, harness.send(Woke(), at=last + 650))
    assert of_type(StopSandbox, harness.send(Woke(), at=last + 726))  # 660 x 1.1


def test_hybrid_histogram_keeps_the_whole_range_where_idle_times_are_spread_over_all_bins():
    gaps = [60 * (2 + number % 10) + 30 for number in range(60)]
    moments = [sum(gaps[:number]) for number in range(len(gaps))]
    spread, trusted = (
        idle("hybrid_histogram", moments, {"hybrid_histogram": {"bins": "12", "cv": cv}}) for cv in ("2", "0")
    )
    assert len(of_type(StopSandbox, spread.log)) < 5  # the first few idle times are not spread yet
    assert len(of_type(StopSandbox, trusted.log)) > 50


def test_hybrid_histogram_waits_the_whole_range_until_it_is_reliable():
    harness = idle("hybrid_histogram", [0, 600], {"hybrid_histogram": {"enough": "2"}})
    assert not of_type(StopSandbox, harness.send(Woke(), at=600 + 4 * 3600 - 1))
    assert of_type(StopSandbox, harness.send(Woke(), at=600 + 4 * 3600))


def test_lecar_forgets_entries_that_are_gone_without_an_eviction():
    policy = LeCaR(Params())
    for number in range(1000):
        entry = Entry(number)
        policy.add(entry, now=number)
        policy.forget(entry)
    assert [len(expert._sizes) for expert in policy._alone.values()] == [0, 0]  # they must not grow
