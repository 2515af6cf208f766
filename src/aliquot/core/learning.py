"""Learn from runs: estimates of run times, and the limit on the size of batches."""

from aliquot.core.admission.estimates import Outlook
from aliquot.core.batch_times import BatchTimes
from aliquot.core.events import RunFinished
from aliquot.core.interfaces import Batching
from aliquot.core.records import Sandbox


def learn(event: RunFinished, sandbox: Sandbox, batching: Batching, *, now: float) -> None:
    """Update the estimates of the sandbox's flow with a run that has finished and whose members have not ended yet."""
    flow = sandbox.flow
    flow.record_run(sandbox.device.spec.kind, event.run_s)
    if flow.outlook is not None and not event.again:
        _learn_bound(sandbox, flow.outlook, now)
    if flow.ahead is not None:
        flow.ahead.record_run(event.inside_s)
    if flow.batches is not None:
        if event.out_of_memory:
            learn_limit(sandbox)
        else:
            _learn_batch(event, sandbox, flow.batches, batching, now)


def _learn_bound(sandbox: Sandbox, outlook: Outlook, now: float) -> None:
    """Learn how long the run held its lane: from the command to run it until its end was reported."""
    invocation = sandbox.invocation
    if invocation is None:
        return
    size = 1 if sandbox.batch is None else sandbox.batch.began_with
    first = sandbox.uses == size
    kind, seconds = sandbox.device.spec.kind, now - invocation.story[-1][0]
    outlook.record_run(kind, size, seconds, first=first, now=now)
    times = sandbox.flow.spec.times_on(sandbox.device.spec)
    if times.batch_s and (declared := times.batch_run_s(size)):
        outlook.record_ratio(kind, seconds / declared, now)
    if outlook.probe is not None and any(member.id == outlook.probe for member in sandbox.in_flight):
        outlook.probe = None


def learn_limit(sandbox: Sandbox) -> None:
    """Allow only smaller batches, because that of the sandbox has run out of memory."""
    times = sandbox.flow.batches
    if times is not None and sandbox.batch is not None:
        times.ran_out_of_memory(sandbox.batch.began_with)


def _learn_batch(event: RunFinished, sandbox: Sandbox, times: BatchTimes, batching: Batching, now: float) -> None:
    """Learn the time of a batch, unless it failed. The first run of a size in a sandbox often takes longer."""
    size = 1 if sandbox.batch is None else sandbox.batch.began_with
    if size in sandbox.sizes_run and not event.again:
        kind = sandbox.device.spec.kind
        times.record(kind, size, event.run_s)
        late = any(member.deadline is not None and member.deadline < now for member in sandbox.in_flight)
        batching.ran(sandbox.flow, times, kind, size, event.run_s, late=late)
    sandbox.sizes_run.add(size)
