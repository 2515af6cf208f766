"""Prepare functions after a start of the server: only those whose last call was a short while ago, with success.

A function that is not called any more, or that fails, would cost a zygote at every start.
"""

import msgspec
from msgspec import Struct

from aliquot.live.catalogue.catalogue import Catalogue, FunctionHost
from aliquot.live.catalogue.resolving import full_name
from aliquot.live.store.base import ActivationQuery, Store
from aliquot.live.store.errors import AccessDeniedError, NotFoundError

MAX_AGE_MS = 3_600_000
MAX_RECORDS = 10  # the newest of each namespace


class _Summary(Struct):
    statusCode: int = 0  # noqa: N815 - the field's name in stored records


async def prepare_recent(host: FunctionHost, store: Store, catalogue: Catalogue, *, now_ms: int) -> int:
    """Prepare the functions that succeeded lately, of each namespace in turn. Returns their number."""
    prepared = 0
    for namespace in catalogue.namespaces():
        query = ActivationQuery(namespace.owner, since=now_ms - MAX_AGE_MS, limit=MAX_RECORDS, summaries=True)
        last: dict[str, bytes] = {}  # the summary of the newest call, by function
        for each in await store.activations(query):
            last.setdefault(each.name, each.summary)
        for name in (name for name, summary in last.items() if _succeeded(summary)):
            try:
                resolved = catalogue.resolve(namespace.name, full_name(namespace.name, name))
            except (NotFoundError, AccessDeniedError):
                continue
            if resolved.has_code:
                host.prepare(resolved)
                prepared += 1
    return prepared


def _succeeded(summary: bytes) -> bool:
    return msgspec.json.decode(summary, type=_Summary).statusCode == 0
