"""Jobs for expression workers: tenants take turns, and a tenant whose jobs took long is kept from the quick worker."""

from aliquot.live.expressions.jobs import CHECKS, LONG, QUICK, SUSPECT_S, ExpressionJob, JobQueue


def job(tenant, kind=LONG):
    return ExpressionJob(tenant, kind, bytes, print, print)


def taken(queue, kind):
    made = []
    while (found := queue.take(kind)) is not None:
        made.append(found.tenant)
    return made


def test_tenants_take_turns():
    queue = JobQueue()
    for tenant in "aaabbc":
        assert queue.add(job(tenant), now=0) == QUICK
    assert taken(queue, QUICK) == ["a", "b", "c", "a", "b", "a"]


def test_a_job_that_ended_its_worker_is_tried_again_by_the_kind_that_it_names():
    queue = JobQueue()
    assert queue.overran(job("a"), QUICK, now=0) == LONG
    assert queue.overran(job("b", CHECKS), QUICK, now=0) == CHECKS
    assert queue.overran(job("a"), LONG, now=0) is None
    assert (taken(queue, LONG), taken(queue, CHECKS), taken(queue, QUICK)) == (["a"], ["b"], [])


def test_a_tenant_whose_job_took_long_is_not_tried_by_the_quick_worker_for_a_while():
    queue = JobQueue()
    queue.overran(job("a"), QUICK, now=0)
    assert queue.add(job("a"), now=SUSPECT_S - 1) == LONG
    assert queue.add(job("b"), now=SUSPECT_S - 1) == QUICK
    assert queue.add(job("a"), now=SUSPECT_S) == QUICK
