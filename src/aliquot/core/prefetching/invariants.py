"""Do the prefetcher's books balance? Counted again from scratch, as `core/invariants.py` does for the rest."""

from collections.abc import Iterator

from aliquot.core.interfaces import Limits
from aliquot.core.prefetching.prefetcher import Prefetcher
from aliquot.core.prefetching.records import File


def violations(prefetcher: Prefetcher) -> Iterator[str]:
    yield from _files(prefetcher)
    yield from _audiences(prefetcher)
    yield from _budget(prefetcher)


def _files(prefetcher: Prefetcher) -> Iterator[str]:
    for number, file in prefetcher.in_flight.items():
        if file.fetch != number or prefetcher.files.get(file.key) is not file:
            yield f"fetch {number} brings {file.key}, which does not know it"
    for key, file in prefetcher.files.items():
        name = "/".join(key)
        if file.fetch is None and not file.wanters:
            yield f"{name} is neither wanted nor on its way"
        if file.fetch is not None and not file.cancelled and not file.wanters:
            yield f"{name} is on its way for nobody"
        if (file.fetch is not None) != (prefetcher.in_flight.get(file.fetch or 0) is file):
            yield f"{name} is on its way as {file.fetch}, which is not counted"
        for whose, audience in file.wanters.items():
            if prefetcher.audiences.get(whose) is not audience or key not in audience.wants:
                yield f"{name} counts {whose} among those who want it"


def _audiences(prefetcher: Prefetcher) -> Iterator[str]:
    turns = prefetcher.turns
    listed = {audience.key: audience for line in turns.lines.values() for audience in line.audiences.values()}
    if listed != prefetcher.audiences:
        yield f"audiences are {list(prefetcher.audiences)}, by tenant {list(listed)}"
    for whose, audience in prefetcher.audiences.items():
        for key, want in audience.wants.items():
            if prefetcher.files.get(key) is not want.file or whose not in want.file.wanters:
                yield f"{whose} wants {key}, which does not know it"
            if not prefetcher.readers.reads(whose[0], key[0]):
                yield f"{whose} wants {key}, which no function of its tenant reads"
        if audience.first() is not None and audience.session not in audience.line.waiting:
            yield f"{whose} has something to bring and no turn"
    if turns.ring and not prefetcher.in_flight:
        yield f"{list(turns.ring)} wait for their turn, though nothing is on its way"


def _budget(prefetcher: Prefetcher) -> Iterator[str]:
    turns = prefetcher.turns
    files = list(prefetcher.in_flight.values())
    yield from _count("all", files, turns.bytes, turns.fetches, turns.limits)
    for tenant, line in turns.lines.items():
        own = [file for file in files if file.payer is line]
        yield from _count(tenant, own, line.bytes, line.fetches, turns.tenant_limits)
        waits = any(audience.first() is not None for audience in line.audiences.values())
        if waits and not line.fetches and tenant not in turns.ring:
            yield f"{tenant} has something to bring, nothing on its way, and no turn"
    strays = [file.key for file in files if file.payer is None or turns.lines.get(file.payer.tenant) is not file.payer]
    if strays:
        yield f"nobody pays for {strays}"


def _count(whose: str, files: list[File], counted_bytes: int, counted: int, limits: Limits) -> Iterator[str]:
    total = sum(file.size for file in files)
    if (counted_bytes, counted) != (total, len(files)):
        yield f"{whose}: {counted} fetches of {counted_bytes} bytes are counted, there are {len(files)} of {total}"
    if len(files) > limits.fetches or (total > limits.bytes and len(files) > 1):
        yield f"{whose}: {len(files)} fetches of {total} bytes are more than the budget of {limits}"
