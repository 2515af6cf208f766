"""The part of the devices that tenants are due and get."""

import pytest

from aliquot.live.usage.tenant_shares import SAMPLE_INTERVAL_S, ShareKey, TenantShares

LAB, SHOP, NIGHT = (ShareKey(name, accelerated=True) for name in ("lab", "shop", "night"))
ON_CPU = ShareKey("lab", accelerated=False)


def sampled(*periods):
    """Return the samples of periods of so many seconds, one after the other, and their end."""
    shares, now_s = TenantShares(), 1000.0
    for duration_s, busy in periods:
        for _ in range(round(duration_s / SAMPLE_INTERVAL_S)):
            now_s += SAMPLE_INTERVAL_S
            shares.sample(now_s, busy.items())
    return shares, now_s


def rows(found, key):
    return next(row for row in found if (row["tenant"], row["on"] != "cpu") == key)


def test_tenants_are_due_by_weight_and_got_what_they_held():
    shares, now_s = sampled((30, {LAB: 1.0}), (30, {LAB: 0.25, SHOP: 0.75}))
    found = shares.rows(now_s, {"lab": 0.5}, ())
    lab = rows(found, LAB)
    assert lab["due_10s"] == lab["due_60s"] == pytest.approx(1 / 3)
    assert lab["got_10s"] == pytest.approx(0.25, abs=0.01)
    assert lab["got_60s"] == pytest.approx(37.5 / 60, abs=0.01)
    assert rows(found, SHOP)["got_10s"] == pytest.approx(0.75, abs=0.01)


def test_the_cpu_is_counted_apart():
    shares, now_s = sampled((10, {LAB: 0.5, ON_CPU: 3.0, ShareKey("shop", accelerated=False): 1.0}))
    found = shares.rows(now_s, {}, ())
    assert rows(found, LAB)["got_10s"] == 1
    assert rows(found, ON_CPU)["got_10s"] == pytest.approx(0.75)


def test_a_tenant_that_only_waits_is_due_and_got_nothing():
    shares, now_s = sampled((10, {LAB: 1.0}))
    found = shares.rows(now_s, {"night": 3}, [NIGHT])
    assert (rows(found, NIGHT)["due_10s"], rows(found, NIGHT)["got_10s"]) == (0.75, 0)
    assert rows(found, LAB)["due_10s"] == 0.25


def test_tenants_without_work_in_the_last_minute_are_left_out():
    shares, now_s = sampled((10, {LAB: 1.0}), (5, {SHOP: 1.0}))
    assert [row["tenant"] for row in shares.rows(now_s + 50, {}, ())] == ["lab", "shop"]
    assert [row["tenant"] for row in shares.rows(now_s + 57, {}, ())] == ["shop"]
    assert shares.rows(now_s + 61, {}, ()) == []


def test_no_more_samples_are_kept_than_a_minute_has():
    shares, now_s = sampled((300, {LAB: 1.0}))
    assert len(shares._samples) <= 1.1 * 60 / SAMPLE_INTERVAL_S
    assert rows(shares.rows(now_s, {}, ()), LAB)["got_60s"] == 1
