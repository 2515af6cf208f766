"""Budgets: a tenant gets as much as it leaves free, and everything that is held is returned."""

import threading

import pytest

from aliquot.budgets import Budget, BudgetError
from aliquot.core.errors import InputError
from aliquot.descriptors import (
    BODY_DESCRIPTORS,
    RESERVED_DESCRIPTORS,
    SANDBOX_DESCRIPTORS,
    STARTING_DESCRIPTORS,
    divide_descriptors,
)


def test_a_tenant_gets_half_alone_and_a_third_beside_another_greedy_one():
    budget = Budget("things", "pieces", 600)
    held = [budget.reserve("a", 300)]
    with pytest.raises(BudgetError, match="holds 300 pieces and asks for 1 more; it may hold 300 "):
        budget.reserve("a", 1)
    held.append(budget.reserve("b", 150))
    assert not budget.fits("b", 1)
    held.clear()
    for _ in range(1000):
        held += [budget.reserve(tenant, 1) for tenant in ("a", "b") if budget.fits(tenant, 1)]
    assert (budget.held("a"), budget.held("b"), budget.allowed("c")) == (200, 200, 100)


def test_what_is_held_is_returned_with_the_last_reference_and_reported():
    returned = []
    budget = Budget("things", "pieces", 10, lambda: returned.append(budget.used))
    first, again = budget.reserve("a", 2), budget.reserve("a", 3)
    del first
    assert (budget.used, returned) == (3, [3])
    del again
    assert (budget.used, budget.held("a"), returned) == (0, 0, [3, 0])


def test_destructors_on_other_threads_do_not_disturb_the_count():
    budget = Budget("things", "pieces", 10**9)

    def churn():
        for _ in range(20_000):
            budget.reserve("a", 3)

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (budget.used, budget.held("a")) == (0, 0)


@pytest.mark.parametrize("limit", [256, 1024, 4096, 20_000, 2**20])
def test_all_kinds_of_descriptors_together_stay_below_the_limit(limit):
    shares = divide_descriptors(limit)
    most = (
        RESERVED_DESCRIPTORS
        + shares.connections
        + shares.sandboxes * (SANDBOX_DESCRIPTORS + STARTING_DESCRIPTORS)
        + shares.shared_buffers
        + (shares.request_bodies + shares.reply_bodies) * BODY_DESCRIPTORS
    )
    assert most <= limit
    assert min(shares) >= 2


def test_a_limit_on_open_files_that_is_too_low_is_refused():
    with pytest.raises(InputError, match="the limit on open files is 100, and the server needs 256"):
        divide_descriptors(100)
