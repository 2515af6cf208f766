"""Check the prefetcher's state by recomputing its counts, as `core/invariants.py` does for the rest."""

from collections.abc import Iterator

from aliquot.core.interfaces import FetchLimits
from aliquot.core.prefetching.by_node import NodePrefetchers
from aliquot.core.prefetching.prefetcher import Prefetcher
from aliquot.core.prefetching.records import PrefetchFile


def violations(prefetchers: NodePrefetchers) -> Iterator[str]:
    """Yield a text for each error in the state of a node's prefetcher."""
    for node, prefetcher in prefetchers.by_node.items():
        for key in prefetcher.audiences:
            if prefetchers.node_of.get(key) != node:
                yield f"audience {key} is on node '{node}', but belongs to '{prefetchers.node_of.get(key)}'"
        yield from _violations(prefetcher)


def _violations(prefetcher: Prefetcher) -> Iterator[str]:
    yield from _files(prefetcher)
    yield from _audiences(prefetcher)
    yield from _budget(prefetcher)


def _files(prefetcher: Prefetcher) -> Iterator[str]:
    for number, file in prefetcher.in_flight.items():
        if file.fetch != number or prefetcher.files.get(file.key) is not file:
            yield f"fetch {number} fetches {file.key}, which does not refer to it"
    for key, file in prefetcher.files.items():
        name = "/".join(key)
        if file.fetch is None and not file.wanted_by:
            yield f"{name} is neither wanted nor being fetched"
        if file.fetch is not None and not file.cancelled and not file.wanted_by:
            yield f"{name} is being fetched although no audience wants it"
        if (file.fetch is not None) != (prefetcher.in_flight.get(file.fetch or 0) is file):
            yield f"{name} is being fetched as {file.fetch}, which is not counted"
        for audience_key, audience in file.wanted_by.items():
            if prefetcher.audiences.get(audience_key) is not audience or key not in audience.wants:
                yield f"{name} lists {audience_key}, which does not want it"


def _audiences(prefetcher: Prefetcher) -> Iterator[str]:
    queue = prefetcher.queue
    listed = {audience.key: audience for own in queue.tenants.values() for audience in own.audiences.values()}
    if listed != prefetcher.audiences:
        yield f"audiences are {list(prefetcher.audiences)}, by tenant {list(listed)}"
    for audience_key, audience in prefetcher.audiences.items():
        for key, want in audience.wants.items():
            if prefetcher.files.get(key) is not want.file or audience_key not in want.file.wanted_by:
                yield f"{audience_key} wants {key}, which does not list it"
            if not prefetcher.readers.reads(audience_key[0], key[0]):
                yield f"{audience_key} wants {key}, which no function of its tenant reads"
        if audience.first() is not None and audience.session not in audience.queue.waiting:
            yield f"{audience_key} has something to fetch and is not queued"
    if queue.ready and not prefetcher.in_flight:
        yield f"{list(queue.ready)} wait for their turn, though nothing is being fetched"


def _budget(prefetcher: Prefetcher) -> Iterator[str]:
    queue = prefetcher.queue
    files = list(prefetcher.in_flight.values())
    yield from _count("all", files, queue.bytes, queue.fetches, queue.limits)
    for tenant, own in queue.tenants.items():
        charged = [file for file in files if file.charged_to is own]
        yield from _count(tenant, charged, own.bytes, own.fetches, queue.tenant_limits)
        waits = any(audience.first() is not None for audience in own.audiences.values())
        if waits and not own.fetches and tenant not in queue.ready:
            yield f"{tenant} has something to fetch, nothing in flight, and is not queued"
    strays = [
        file.key
        for file in files
        if file.charged_to is None or queue.tenants.get(file.charged_to.tenant) is not file.charged_to
    ]
    if strays:
        yield f"no tenant is charged for {strays}"


def _count(
    owner: str, files: list[PrefetchFile], counted_bytes: int, counted: int, limits: FetchLimits
) -> Iterator[str]:
    total = sum(file.size for file in files)
    if (counted_bytes, counted) != (total, len(files)):
        yield f"{owner}: {counted} fetches of {counted_bytes} bytes are counted, there are {len(files)} of {total}"
    if len(files) > limits.fetches or (total > limits.bytes and len(files) > 1):
        yield f"{owner}: {len(files)} fetches of {total} bytes are more than the budget of {limits}"
