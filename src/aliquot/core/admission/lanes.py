"""Lanes and blocks: the runs that are planned on one device.

A lane is one of the runs that a device can have at once. It has an ordered list of blocks. A block is one run of one
flow with one call or several, and begins when the block before it in its lane has ended. Its length is a bound, so it
begins no later than planned. A run that ends early brings all that follows in its lane forward. So a promise depends
only on the runs before it in its own lane.

A call whose share is larger than a slot takes several lanes at once. It begins when all of them are free.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, cast

from aliquot.core.admission.blocks import TOLERANCE_S, Block, believed
from aliquot.core.admission.estimates import plain_bound
from aliquot.core.lifecycle import BUSY, WARM

if TYPE_CHECKING:
    from aliquot.core.admission.demand import KindDemand
    from aliquot.core.admission.plan import Plan
    from aliquot.core.device import Device
    from aliquot.core.flow import Flow
    from aliquot.core.records import Invocation, Sandbox
    from aliquot.core.view import FlowView

MAX_PUSHED = 512  # blocks that one call may move


class Lane:
    """One of the runs that a device can have at once."""

    __slots__ = (
        "blocks", "busy_until", "check_at", "device", "latest_start", "number", "occupant", "orphaned", "plan",
        "sandboxes",
    )  # fmt: skip

    def __init__(self, plan: "DevicePlan", number: int) -> None:
        self.plan = plan
        self.device = plan.device
        self.number = number
        self.blocks: list[Block] = []  # not started, by key
        self.occupant: Sandbox | None = None  # of the current run, promised or not
        self.busy_until: float = 0  # the bound of that run
        self.sandboxes: dict[int, Sandbox] = {}  # pinned for its blocks, by flow
        self.latest_start = inf  # when its blocks must begin at the latest
        self.orphaned = False  # a sandbox that its blocks count on is gone
        self.check_at = inf  # when it is looked at even if nothing happens

    @property
    def free_at(self) -> float:
        return self.busy_until if self.occupant is not None else 0.0

    def free_from(self, now: float) -> float:
        """Return when its current run is believed to end."""
        return now if self.occupant is None else believed(self.busy_until, now)

    def lose(self, sandbox: "Sandbox") -> None:
        """Note that a pinned sandbox is gone. Its blocks must have another one."""
        self.sandboxes.pop(sandbox.flow.index, None)
        self.orphaned = True
        sandbox.lane = None
        self.plan.plan.touch((self,))

    def work_before(self, due: float, now: float) -> float:
        """Return the seconds of work that it has to do by then."""
        place = bisect_right(self.blocks, due, key=_key)
        return self.free_from(now) - now + (self.blocks[place - 1].work_s if place else 0.0)

    def end_with(self, key: float, due: float, length_s: float, ready: float, now: float) -> float | None:
        """Return the end of a new block, or None if it or a later block would miss its due time."""
        blocks = self.blocks
        if blocks and blocks[0].starts < now:
            self.plan.refresh((self,), now)  # what was to begin by now is late
        place = bisect_right(blocks, key, key=_key)
        if len(blocks) - place > MAX_PUSHED:
            return None
        before = blocks[place - 1].ends if place else self.free_from(now)
        ends = max(before, ready) + length_s
        if ends > due + TOLERANCE_S or (place < len(blocks) and ends > blocks[place].latest + TOLERANCE_S):
            return None
        return ends

    def refresh(self, now: float, begin: int = 0) -> Block | None:
        """Compute the times of all blocks, and return the first that would miss its due time.

        Those before `begin` still have their times.
        """
        blocks = self.blocks
        if begin:
            free, work = blocks[begin - 1].ends, blocks[begin - 1].work_s
        else:
            free, work = self.free_from(now), 0.0
        late = None
        latest_due = self.plan.plan.grace_s + TOLERANCE_S
        for block in blocks[begin:] if begin else blocks:
            ready = block.ready_at(now)
            start = max(ready, free)
            work += block.length_s
            block.starts, block.work_s = start, work
            free = start + block.length_s
            if block.staged and abs(free - block.ends) > TOLERANCE_S:
                self.plan.affect(lane for stage in block.stages for lane in stage.lanes_after())
            block.ends = free
            if late is None and free > block.due + latest_due:
                late = block
        self._refresh_latest(begin)
        return late

    def _refresh_latest(self, begin: int) -> None:
        """Compute when each block must begin at the latest, from the last one on.

        Those behind `begin` still have their times, and so have those before one that stays the same.
        """
        blocks = self.blocks
        last = begin or len(blocks) - 1
        latest = blocks[last + 1].latest if last + 1 < len(blocks) else inf
        for place in range(last, -1, -1):
            block = blocks[place]
            limit = block.limit if block.staged else block.due
            latest = (min(latest, limit)) - block.length_s
            if begin and place < begin and latest == block.latest:
                break
            if block.staged and abs(latest - block.latest) > TOLERANCE_S:
                self.plan.affect(lane for stage in block.stages for lane in stage.lanes_before())
            block.latest = latest
        self.latest_start = blocks[0].latest if blocks else inf
        running = None if self.occupant is None else self.plan.plan.running.get(self.occupant.id)
        if running is not None and running.staged:
            self.latest_start = min(self.latest_start, *(stage.latest_end() for stage in running.stages))


class DevicePlan:
    """The lanes of one device, and the slots that its plain calls use beside them."""

    __slots__ = (
        "affected", "closed_for", "device", "kind", "lanes", "outside", "outside_used", "plan", "used_at", "wide",
    )  # fmt: skip

    def __init__(self, device: "Device", plan: "Plan", kind: "KindDemand") -> None:
        self.device = device
        self.plan = plan
        self.kind = kind
        self.used_at: float = plan.now
        self.affected: list[Lane] = []  # lanes with stages that come before or after those whose times have changed
        count = min(device.spec.lane_count, device.slots)
        self.lanes = tuple(Lane(self, number) for number in range(count))
        self.outside = device.slots - count  # slots that are no lanes, for plain calls alone
        self.outside_used: dict[int, int] = {}  # by sandbox
        self.wide = 0  # blocks that take several lanes
        self.closed_for: Invocation | None = None  # a queued call that has to run before anything is promised here

    @property
    def empty(self) -> bool:
        """Return whether nothing is planned, so that plain calls need not be asked."""
        running = self.plan.running
        return not any(
            lane.blocks or lane.sandboxes or (lane.occupant is not None and lane.occupant.id in running)
            for lane in self.lanes
        )

    def is_closed(self) -> bool:
        """Return whether nothing more is promised here before a call has left its queue."""
        waiting = self.closed_for
        if waiting is not None and waiting.id not in waiting.flow.queue:
            self.closed_for = waiting = None
        return waiting is not None

    def width(self, flow: "Flow") -> int:
        """Return the number of lanes that a call of the flow takes."""
        return flow.spec.lanes_on(self.device.spec)

    def end_with(
        self, lanes: tuple[Lane, ...], key: float, due: float, length_s: float, ready: float, now: float
    ) -> float | None:
        """Return the end of a new block in these lanes, or None if it or a later block would miss its due time."""
        if not self.wide and len(lanes) == 1:
            return lanes[0].end_with(key, due, length_s, ready, now)
        free = {lane.number: lane.free_from(now) for lane in self.lanes}
        ends = None
        for block in self.blocks():
            if ends is None and block.key > key:
                ends = _run(lanes, free, ready, length_s)
                if ends > due + TOLERANCE_S:
                    return None
            if _run(block.lanes, free, block.ready_at(now), block.length_s) > block.limit + TOLERANCE_S:
                return None
        ends = _run(lanes, free, ready, length_s) if ends is None else ends
        return None if ends > due + TOLERANCE_S else ends

    def affect(self, lanes: "Iterable[Lane]") -> None:
        """Note lanes whose times must be computed again, because those of other stages have changed."""
        self.affected += lanes

    def refresh(self, lanes: "tuple[Lane, ...]", now: float, begin: int = 0) -> Block | None:
        """Compute the times of the blocks in these lanes, and return the first that would miss its due time.

        Lanes with stages that come before or after follow. The order of all blocks has no circle, so this ends.
        """
        late = self._refresh_own(lanes, now, begin)
        while self.affected:
            lane = self.affected.pop()
            found = lane.plan._refresh_own((lane,), now)  # noqa: SLF001 - the same class
            if lane.plan is not self:
                self.affected += lane.plan.affected
                lane.plan.affected.clear()
            self.plan.touch((lane,))
            late = late or found
        return late

    def _refresh_own(self, lanes: "tuple[Lane, ...]", now: float, begin: int = 0) -> Block | None:
        if not self.wide:
            late = [block for lane in lanes if (block := lane.refresh(now, begin)) is not None]
            return late[0] if late else None
        return self._refresh_wide(now)

    def _refresh_wide(self, now: float) -> Block | None:
        """Compute the times of all blocks, where some take several lanes."""
        free = {lane.number: lane.free_from(now) for lane in self.lanes}
        work = dict.fromkeys(free, 0.0)
        first, slack = None, inf
        ordered = self.blocks()
        for block in ordered:
            ends = _run(block.lanes, free, block.ready_at(now), block.length_s)
            if block.staged and abs(ends - block.ends) > TOLERANCE_S:
                self.affect(lane for stage in block.stages for lane in stage.lanes_after() if lane.plan is not self)
            block.ends, block.starts = ends, ends - block.length_s
            block.work_s = max(work[lane.number] for lane in block.lanes) + block.length_s
            work.update((lane.number, block.work_s) for lane in block.lanes)
            slack = min(slack, block.limit - ends)
            if first is None and ends > block.due + self.plan.grace_s + TOLERANCE_S:
                first = block
        for block in ordered:  # all may be later by the smallest slack
            latest = block.starts + slack
            if block.staged and abs(latest - block.latest) > TOLERANCE_S:
                self.affect(lane for stage in block.stages for lane in stage.lanes_before() if lane.plan is not self)
            block.latest = latest
        for lane in self.lanes:
            lane.latest_start = lane.free_from(now) + slack if lane.blocks else inf
        return first

    def blocks(self) -> list[Block]:
        """Return all blocks in order, each once."""
        found = {block.number: block for lane in self.lanes for block in lane.blocks}
        return sorted(found.values(), key=lambda block: (block.key, block.number))

    def together(self, first: Lane, width: int, key: float, now: float) -> tuple[Lane, ...]:
        """Return so many lanes for a block that takes several, with those that are free first after the first one."""
        others = [lane for lane in self.lanes if lane is not first]
        others.sort(key=lambda lane: lane.work_before(key, now))
        return (first, *others[: width - 1])

    def can_grow(self, block: Block, seconds: float) -> bool:
        """Return whether a block may take longer without making it or a later one late."""
        if self.wide:
            return self._none_late_with(block, seconds)
        blocks = block.lanes[0].blocks
        place = blocks.index(block)
        end = block.ends + seconds
        if end > block.limit + TOLERANCE_S or len(blocks) - place > MAX_PUSHED:
            return False
        return place + 1 == len(blocks) or end <= blocks[place + 1].latest + TOLERANCE_S

    def _none_late_with(self, longer: Block, seconds: float) -> bool:
        """Return whether all blocks are in time if one takes longer."""
        now = self.plan.now
        free = {lane.number: lane.free_from(now) for lane in self.lanes}
        for block in self.blocks():
            length_s = block.length_s + (seconds if block is longer else 0)
            if _run(block.lanes, free, block.ready_at(now), length_s) > block.limit + TOLERANCE_S:
                return False
        return True

    def none_late_behind(self, first: Block, without: Block, end: float, now: float) -> bool:
        """Return whether all other blocks are in time if the first one runs until then, and another is dropped."""
        lanes = self.lanes if self.wide else first.lanes
        free = {lane.number: end if lane in first.lanes else lane.free_from(now) for lane in lanes}
        for block in self.blocks() if self.wide else first.lanes[0].blocks:
            if block is first or block is without:
                continue
            if _run(block.lanes, free, block.ready_at(now), block.length_s) > block.limit + TOLERANCE_S:
                return False
        return True

    def add(self, block: Block) -> None:
        """Add a block to the lists of its lanes."""
        self.kind.blocks += 1
        self.wide += len(block.lanes) > 1
        for lane in block.lanes:
            insort(lane.blocks, block, key=_key)

    def remove(self, block: Block) -> None:
        self.kind.blocks -= 1
        self.wide -= len(block.lanes) > 1
        for lane in block.lanes:
            lane.blocks.remove(block)

    def permits(self, flow: "FlowView", now: float) -> bool:
        """Return whether a plain call may take a slot: it must end before the next block has to start there."""
        own = cast("Flow", flow)
        return self._slots_for(own, plain_bound(own, self.device, now), now) is not None

    def _slots_for(self, flow: "Flow", seconds: float | None, now: float) -> tuple[int, list[Lane]] | None:
        """Return the slots outside of lanes and the lanes that a plain call takes, or None if there are too few."""
        width = self.width(flow)
        outside = self._outside_for(flow, width)
        lanes = [lane for lane in self.lanes if lane.occupant is None and _allows(lane, seconds, now)]
        if outside + len(lanes) < width:
            return None
        if seconds is None and self.kind.blocks and self.kind.unbounded + width - outside >= self.kind.lanes:
            return None  # nobody knows when it ends, so it never takes the last lane
        lanes.sort(key=lambda lane: -lane.latest_start)
        return outside, lanes[: width - outside]

    def _outside_for(self, flow: "Flow", width: int) -> int:
        """Return the slots outside of lanes that a plain call takes. With a share it takes its part of the lanes."""
        if flow.spec.share and self.device.sliced:
            return 0
        return max(0, min(width, self.outside - sum(self.outside_used.values())))

    def occupy(self, sandbox: "Sandbox", now: float) -> None:
        """Count the slots of a plain run. A run that the plan did not permit takes what is left."""
        size = 1 if sandbox.batch is None else sandbox.batch.size
        started = sandbox.state in {WARM, BUSY}
        seconds = plain_bound(sandbox.flow, self.device, now, size, started=started)
        found = self._slots_for(sandbox.flow, seconds, now)
        if found is None:
            width = self.width(sandbox.flow)
            outside = self._outside_for(sandbox.flow, width)
            lanes = [lane for lane in self.lanes if lane.occupant is None][: width - outside]
        else:
            outside, lanes = found
        if outside:
            self.outside_used[sandbox.id] = outside
        for lane in lanes:
            lane.occupant = sandbox
            lane.busy_until = inf if seconds is None else now + seconds
        self.refresh(tuple(lanes), now)
        self.kind.unbounded += len(lanes) if seconds is None else 0
        if lanes and seconds is not None:
            self.kind.ran_plain(seconds * len(lanes), now)
        sandbox.occupies = (*sandbox.occupies, *lanes)
        sandbox.planned = True

    def run(self, block: Block, sandbox: "Sandbox", seconds: float, now: float) -> None:
        """Let a block begin in its lanes, which are free."""
        self.remove(block)
        block.running, block.began = True, now
        self.plan.running[sandbox.id] = block
        for lane in block.lanes:
            lane.occupant, lane.busy_until = sandbox, now + seconds
        sandbox.occupies, sandbox.planned = block.lanes, True
        self.refresh(block.lanes, now)

    def vacate(self, sandbox: "Sandbox") -> None:
        """Free the slots of a run that has ended."""
        now = self.plan.now
        self.plan.running.pop(sandbox.id, None)
        self.outside_used.pop(sandbox.id, None)
        freed = tuple(lane for lane in self.lanes if lane.occupant is sandbox)
        for lane in freed:
            lane.occupant = None
            self.kind.unbounded -= lane.busy_until == inf
        self.refresh(freed, now)
        self.plan.touch(freed)


def _run(lanes: tuple[Lane, ...], free: dict[int, float], ready: float, length_s: float) -> float:
    """Let a block follow in these lanes, and return its end."""
    end = max(ready, *(free[lane.number] for lane in lanes)) + length_s
    for lane in lanes:
        free[lane.number] = end
    return end


def _key(block: Block) -> float:
    return block.key


def _allows(lane: Lane, seconds: float | None, now: float) -> bool:
    if not lane.blocks:
        return True
    return seconds is not None and now + seconds <= lane.latest_start + TOLERANCE_S


def vacate(sandbox: "Sandbox") -> None:
    """Free the slots that a run which has ended held in the plans of its devices."""
    sandbox.planned = False
    for device in sandbox.devices:
        if device.plan is not None:
            device.plan.vacate(sandbox)
    if sandbox.lane is not None:
        sandbox.lane.plan.plan.touch((sandbox.lane,))  # it ran outside of lanes, and blocks count on it
    sandbox.occupies = ()
