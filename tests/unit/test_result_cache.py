"""The cache of results: what it finds, whom it evicts, and who waits for an equal call."""

from aliquot.core.units import MIB
from aliquot.result_cache import ENTRY_BYTES, MAX_RESULT_BYTES, ResultCache, ResultKey

SIZE = 1000


def key(name, tenant="ann", function="f", revision="1"):
    return ResultKey(tenant, function, revision, "json", name.encode())


def filled(names, *, limit=10, tenant="ann", cache=None, run_s=1.0):
    cache = ResultCache(limit * (SIZE + ENTRY_BYTES)) if cache is None else cache
    for name in names:
        cache.add(key(name, tenant), name, size=SIZE, run_s=run_s, ttl_s=60, now=0)
    return cache


def test_a_result_is_found_until_its_time_is_over():
    cache = filled("a")
    assert cache.find(key("a"), now=59) == "a"
    assert cache.find(key("a"), now=60) is None
    assert (cache.bytes, len(cache)) == (0, 0)


def test_every_part_of_the_key_counts():
    cache = filled("a")
    for other in (key("b"), key("a", "bob"), key("a", function="g"), key("a", revision="2")):
        assert cache.find(other, now=0) is None


def test_results_that_are_used_and_costly_stay():
    cache = filled("abcd", limit=4)
    for _ in range(3):
        assert cache.find(key("b"), now=0) == "b"
    cache.add(key("slow"), "slow", size=SIZE, run_s=100, ttl_s=60, now=0)
    filled("efg", cache=cache)
    assert cache.find(key("b"), now=0) == "b"
    assert cache.find(key("slow"), now=0) == "slow"
    assert cache.bytes <= cache.limit_bytes


def test_a_tenant_with_many_results_loses_its_own():
    cache = filled("abcdefgh")
    filled("xy", tenant="bob", cache=cache)
    filled("ijklmnop", cache=cache)
    assert [cache.find(key(name, "bob"), now=0) for name in "xy"] == ["x", "y"]


def test_tenants_have_parts_by_their_weight():
    weights = {"ann": 1.0, "bob": 3.0}
    cache = ResultCache(8 * (SIZE + ENTRY_BYTES), weights.__getitem__)
    filled("abcdefgh", cache=cache)
    filled("abcdefgh", tenant="bob", cache=cache)
    found = [sum(cache.find(key(name, tenant), now=0) is not None for name in "abcdefgh") for tenant in weights]
    assert found == [2, 6]


def test_a_large_result_is_not_kept():
    cache = ResultCache(4 * MIB)
    cache.add(key("a"), "a", size=MAX_RESULT_BYTES + 1, run_s=1, ttl_s=60, now=0)
    assert len(cache) == 0
    assert len(filled("a", limit=0)) == 0


def test_a_new_version_forgets_the_results_of_its_function_alone():
    cache = filled("a")
    cache.add(key("a", function="g"), "g", size=SIZE, run_s=1, ttl_s=60, now=0)
    cache.forget("ann", "f")
    assert cache.find(key("a"), now=0) is None
    assert cache.find(key("a", function="g"), now=0) == "g"


def test_equal_calls_wait_for_the_one_under_way():
    cache = ResultCache(0)
    assert not cache.join(key("a"), "first")
    assert cache.join(key("a"), "second")
    assert cache.join(key("a"), "third")
    assert not cache.join(key("b"), "other")
    assert cache.leave(key("a"), "second")
    assert not cache.leave(key("a"), "second")
    assert cache.ended(key("a")) == ["third"]
    assert not cache.join(key("a"), "fourth")
