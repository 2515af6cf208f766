"""A prefetcher for each node, and the node to which each audience belongs.

Files are fetched to the node where an audience's next call will probably run. A call that is dispatched to another node
moves its audience there.
"""

from collections.abc import Callable, Sequence

from aliquot.core.commands import Command
from aliquot.core.errors import EventError
from aliquot.core.events import DatasetRemoved, FetchEnded, FilesPredicted, SessionBegan
from aliquot.core.interfaces import Prefetching
from aliquot.core.prefetching.prefetcher import Prefetcher, check_files
from aliquot.core.prefetching.records import AudienceKey, DatasetReaders, FetchNumbers, audience_of
from aliquot.core.records import Invocation


class NodePrefetchers:
    """Passes events to the prefetcher of the right node."""

    def __init__(self, policy: Prefetching, outbox: list[Command]) -> None:
        self.policy = policy
        self.readers = DatasetReaders()
        self.by_node: dict[str, Prefetcher] = {}
        self.node_of: dict[AudienceKey, str] = {}
        self.needs_decision = False  # whether `decide` may have something to do
        self._changed: dict[str, Prefetcher] = {}  # those that may have something to decide
        self._dispatched: list[Invocation] = []  # calls of this step
        self._numbers = FetchNumbers()
        self._outbox = outbox

    # --- audiences --------------------------------------------------------------------------------------

    def session_began(self, event: SessionBegan, find_node: Callable[[], str], *, now: float) -> None:
        if self.policy.wants_predictions and self.readers.has_any(event.tenant):
            self._of((event.tenant, event.session), find_node).session_began(event, now=now)

    def function_called(
        self, tenant: str, function: str, session: str | None, find_node: Callable[[], str], *, now: float
    ) -> None:
        """Request a prediction after a call of a function that reads datasets."""
        if self.policy.wants_predictions:
            prefetcher = self._of((tenant, audience_of(session, function)), find_node)
            prefetcher.function_called(tenant, function, session, now=now)

    def call_dispatched(self, invocation: Invocation) -> None:
        """Record the dispatch of a call of a function that reads datasets. Its audience follows at the step's end."""
        self._dispatched.append(invocation)
        self.needs_decision = True

    def _follow(self, invocation: Invocation, *, now: float) -> None:
        """Move the audience of a call to the node on which the call runs."""
        if invocation.device is None:
            return  # it has returned to its queue
        tenant, function = invocation.flow.key
        session = None if invocation.session is None else invocation.session.key[1]
        node = invocation.device.spec.node
        key = (tenant, audience_of(session, function))
        before = self.node_of.get(key)
        if before is None or before == node:
            return
        self._change(before).audience_left(key, f"its calls run on node {node}")
        self.node_of[key] = node
        self._change(node).function_called(tenant, function, session, now=now)

    def session_ended(self, tenant: str, session: str) -> None:
        node = self.node_of.pop((tenant, session), None)
        if node is not None:
            self._change(node).session_ended(tenant, session)

    def function_changed(self, tenant: str, before: Sequence[str], after: Sequence[str]) -> None:
        """Update the datasets that a function reads."""
        unread = self.readers.change(tenant, before, after)
        for node in list(self.by_node) if unread else ():
            self._change(node).drop_unread(tenant, unread)

    def function_removed(self, tenant: str, function: str, datasets: Sequence[str]) -> None:
        key = (tenant, audience_of("", function))
        node = self.node_of.pop(key, None)
        if node is not None:
            self._change(node).audience_left(key, "its function was removed")
        self.function_changed(tenant, datasets, ())

    def dataset_removed(self, event: DatasetRemoved) -> None:
        for node in list(self.by_node):
            self._change(node).dataset_removed(event)

    def node_lost(self, node: str) -> None:
        """Forget the fetches and audiences of a node that is lost. The next calls tell where audiences belong."""
        lost = self.by_node.pop(node, None)
        if lost is not None:
            self._changed.pop(node, None)
            for key in lost.audiences:
                del self.node_of[key]
            self._numbers.forget(lost.in_flight)

    # --- predictions and fetches ------------------------------------------------------------------------

    def files_predicted(self, event: FilesPredicted, *, now: float) -> None:
        check_files(event)
        node = self.node_of.get((event.tenant, event.session))
        if node is not None:  # otherwise its audience has ended in the meantime
            self._change(node).files_predicted(event, now=now)

    def fetch_ended(self, event: FetchEnded, *, now: float) -> None:
        node = self._numbers.nodes.pop(event.fetch, None)
        if node is not None:
            self._change(node).fetch_ended(event, now=now)
        elif event.fetch in self._numbers.lost:
            del self._numbers.lost[event.fetch]
        else:
            known = "has ended already" if 0 < event.fetch <= self._numbers.last else "never began"
            raise EventError(f"fetch {event.fetch} {known}")

    def decide(self, *, now: float) -> None:
        """Cancel and begin fetches on the nodes where something has changed, after all events of the step."""
        for invocation in self._dispatched:
            self._follow(invocation, now=now)
        self._dispatched.clear()
        changed, self._changed = self._changed, {}
        self.needs_decision = False
        for prefetcher in changed.values():
            if prefetcher.needs_decision:
                prefetcher.decide()

    def _of(self, key: AudienceKey, find_node: Callable[[], str]) -> Prefetcher:
        node = self.node_of.get(key)
        if node is None:
            node = self.node_of[key] = find_node()
        return self._change(node)

    def _change(self, node: str) -> Prefetcher:
        prefetcher = self.by_node.get(node)
        if prefetcher is None:
            prefetcher = Prefetcher(self.policy, self._outbox, node, self.readers, self._numbers)
            self.by_node[node] = prefetcher
        self._changed[node] = prefetcher
        self.needs_decision = True
        return prefetcher
