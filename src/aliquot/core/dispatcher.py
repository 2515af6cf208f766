"""Ask the queueing policies for one dispatch after another, and carry out what they choose."""

from collections.abc import Sequence

from aliquot.core.choices import START, resolve
from aliquot.core.commands import Command, Dispatch, Run, Start
from aliquot.core.domain import Domain
from aliquot.core.interfaces import Choice, SwapIn
from aliquot.core.lifecycle import HOST_WARM, WARM, InvocationChange, SandboxChange
from aliquot.core.pool import Pool
from aliquot.core.records import Invocation, Sandbox
from aliquot.core.registry import Registry
from aliquot.core.slices import SliceAllocator


class Dispatcher:
    def __init__(self, registry: Registry, pool: Pool, slices: SliceAllocator, outbox: list[Command]) -> None:
        self._registry = registry
        self._pool = pool
        self._slices = slices
        self._outbox = outbox
        self._dispatches = self._turn = 0

    def decide(self, domains: Sequence[Domain], *, now: float) -> None:
        """Ask the domains in turn for one dispatch each, until all wait, so they alternate on devices they share.

        The turn continues where the last step left it, because often only one slot becomes free at a time.
        """
        count, refused = len(domains), 0
        if count == 1:
            while self._next_of(domains[0], now):
                pass
            return
        while refused < count:
            self._turn %= count
            refused = 0 if self._next_of(domains[self._turn], now) else refused + 1
            self._turn += 1

    def _next_of(self, domain: Domain, now: float) -> bool:
        """Make one dispatch of this domain, and return False if its policy waits."""
        for advice in domain.policy.advise(domain.view):
            flow = self._registry.flows[advice.flow.key]
            if isinstance(advice, SwapIn):
                self._pool.swap_in(flow, displace=advice.displace, now=now)
            else:
                self._pool.swap_out(flow, now=now)
        if not domain.queued or not domain.has_slot():
            return False
        choice = domain.policy.choose(domain.view)
        if choice is None:
            return False
        self._dispatch(domain, choice, now)
        return True

    def _dispatch(self, domain: Domain, choice: Choice, now: float) -> None:
        flow, devices, sandbox = resolve(choice, domain, self._registry, self._pool)
        invocation = flow.head
        del flow.queue[invocation.id]
        flow.queued -= 1
        domain.queued -= 1
        flow.in_flight += 1
        if sandbox is None:
            start = Start.COLD
            sandbox = self._pool.start(invocation, devices, now=now)
        else:
            start = START[sandbox.state]
        self._pool.assign(sandbox, invocation)
        if sandbox.state is HOST_WARM:
            self._pool.load(sandbox, now=now)
        invocation.sandbox = sandbox
        invocation.dispatched = now
        invocation.change(InvocationChange.DISPATCH, now)
        invocation.take_slots(self._dispatches)
        self._dispatches += 1
        self._outbox.append(Dispatch(invocation.id, sandbox.id, sandbox.place, start, choice.reason))
        domain.policy.dispatched(flow, invocation, sandbox.device, domain.view)
        if sandbox.state is WARM:
            self.run(sandbox, invocation, now=now)

    def run(self, sandbox: Sandbox, invocation: Invocation, *, now: float) -> None:
        """Run the invocation in its sandbox, which is ready."""
        sandbox.change(SandboxChange.RUN)
        invocation.change(InvocationChange.RUN, now)
        self._slices.begin_run(sandbox)
        self._outbox.append(Run(invocation.id, sandbox.id))
