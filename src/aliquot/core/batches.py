"""Batches: several invocations of one flow that run together in one sandbox.

The first member leads: it is the invocation of the sandbox. The others ride along. The batch as a whole holds one slot
and the share of its function, and each member is charged its part. A cancelled member leaves, and the others go on. If
the leader leaves, the next member takes its place. The shell still reports the run under the name that `Run` had.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aliquot.core.flow import Flow
    from aliquot.core.records import Invocation


class Batch:
    """The invocations that run together in one sandbox."""

    __slots__ = ("began_with", "leader", "members", "share", "size")

    def __init__(self, leader: "Invocation", size: int) -> None:
        """Begin with an invocation that has its slots. `size` is the number of members that the batch will have."""
        self.leader = leader.id  # the name of the run
        self.members = [leader]
        self.size = size  # when it was dispatched
        self.began_with = size  # members when it began to run
        self.share = leader.share  # held on all devices together
        self._take_part(leader)

    def add(self, rider: "Invocation") -> None:
        """Add a further invocation, which has no slots of its own."""
        rider.sandbox = self.members[0].sandbox
        rider.flow.riders += 1
        self.members.append(rider)
        self._take_part(rider)

    def begin(self) -> tuple[str, ...]:
        """Name the run after the first member, and return the names of the others."""
        first, *riders = self.members
        self.leader = first.id
        self.began_with = len(self.members)
        return tuple(rider.id for rider in riders)

    def leave(self, member: "Invocation") -> None:
        """Remove a member that ends or returns to its queue. The last one frees the slots."""
        self.members.remove(member)
        member.batch = None
        if self.members:
            member.flow.riders -= 1
        else:
            member.share = self.share
            member.free_slots()

    def _take_part(self, member: "Invocation") -> None:
        member.batch = self
        member.share = self.share / self.size


def count_together(flow: "Flow", wanted: int) -> int:
    """Return how many of the flow's first invocations may run together, of the number wanted.

    An invocation whose batch failed runs again alone.
    """
    together = 0
    for invocation in flow.queue.values():
        if together >= wanted or (invocation.alone and together):
            break
        together += 1
        if invocation.alone:
            break
    return max(1, together)
