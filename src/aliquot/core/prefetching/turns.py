"""Whose file is brought next: tenants in turn, and a tenant's audiences in turn, within a budget.

One tenant may have at most half of the budget in use, so that there is always room for another's. A file that is larger
than what there is goes alone: it waits until the rest has come, and nothing passes it meanwhile, as calls that fit
nowhere wait (decision 0004). A tenant that has used its half up does not hold up the others.
"""

from aliquot.core.interfaces import Limits
from aliquot.core.prefetching.records import Audience, File, Line, Want

PART = 2  # one of so many for one tenant


class Turns:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.tenant_limits = Limits(limits.bytes // PART, max(limits.fetches // PART, min(limits.fetches, 1)))
        self.lines: dict[str, Line] = {}
        self.ring: dict[str, Line] = {}  # those that may have something to bring, whose turn it is first
        self.bytes = self.fetches = 0  # on their way

    def line(self, tenant: str) -> Line:
        line = self.lines.get(tenant)
        if line is None:
            line = self.lines[tenant] = Line(tenant)
        return line

    def tidy(self, line: Line) -> None:
        """Forget a tenant of whom nothing is left."""
        if not line.audiences and not line.fetches:
            self.lines.pop(line.tenant, None)
            self.ring.pop(line.tenant, None)

    def stir(self, audience: Audience) -> None:
        """It may have something to bring that could not begin before."""
        line = audience.line
        line.waiting.setdefault(audience.session, audience)
        self.ring.setdefault(line.tenant, line)

    def take(self) -> tuple[Audience, Want] | None:
        """Whose turn it is, and for which file; None: for nobody's is there room now."""
        while self.ring:
            tenant, line = next(iter(self.ring.items()))
            found = line.first()
            if found is None or not _has_room(line, found[1].file, self.tenant_limits):
                del self.ring[tenant]  # until one of its files has come, or it wants another
                continue
            if not _has_room(self, found[1].file, self.limits):
                return None
            session = found[0].session
            self.ring[tenant] = self.ring.pop(tenant)
            line.waiting[session] = line.waiting.pop(session)
            return found
        return None

    def begin(self, file: File, line: Line) -> None:
        file.payer = line
        for book in (self, line):
            book.bytes += file.size
            book.fetches += 1

    def end(self, file: File) -> None:
        line = file.payer
        if line is None:
            return
        file.payer = None
        for book in (self, line):
            book.bytes -= file.size
            book.fetches -= 1
        if line.waiting:
            self.ring.setdefault(line.tenant, line)
        self.tidy(line)


def _has_room(book: Turns | Line, file: File, limits: Limits) -> bool:
    if not book.fetches:
        return limits.fetches > 0
    return book.fetches < limits.fetches and book.bytes + file.size <= limits.bytes
