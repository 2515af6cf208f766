"""Assemble a scheduler with its policies from settings, for both shells."""

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, TypeVar

from aliquot.config import PolicySettings, make_params
from aliquot.core.admission.interfaces import Admission
from aliquot.core.errors import InputError
from aliquot.core.interfaces import Eviction, Packing, Params, Prefetching, Queueing, Sharing
from aliquot.core.scheduler import Scheduler
from aliquot.policies.admission import ADMISSION
from aliquot.policies.eviction import EVICTION
from aliquot.policies.keepalive import KEEPALIVE
from aliquot.policies.packing import PACKING
from aliquot.policies.prefetching import PREFETCHING
from aliquot.policies.queueing import QUEUEING
from aliquot.policies.sharing import SHARING

T = TypeVar("T")


def assemble(settings: PolicySettings, queueing: Mapping[str, type[Queueing]] = QUEUEING) -> Scheduler:
    """Make a scheduler from the settings. `queueing` may have more policies than the usual table."""
    policy = look_up(queueing, settings.queueing, "policy")
    params = make_params(policy.params_type, settings.queueing, settings.params.get(settings.queueing, {}))
    companions = policy.companions(params)

    keepalive_name = companions.keepalive if settings.keepalive is None else settings.keepalive
    keepalive = look_up(KEEPALIVE, keepalive_name, "keepalive")
    own = companions.keepalive_params if keepalive_name == companions.keepalive else {}
    keepalive_params = make_params(keepalive.params_type, keepalive_name, own | settings.params.get(keepalive_name, {}))
    eviction_name = companions.eviction if settings.eviction is None else settings.eviction
    chosen = (settings.sharing, settings.packing, settings.prefetching, settings.admission)
    return Scheduler(
        partial(_make_queueing, policy, params, settings.seed),
        keepalive(keepalive_params),
        _make_eviction(eviction_name, settings),
        _make_sharing(settings),
        _make_packing(settings),
        _make_prefetching(settings),
        _make_admission(settings),
        companions.pool_slots if settings.pool_slots is None else settings.pool_slots or None,
        (settings.queueing, keepalive_name, eviction_name, *chosen),
        settings.node_wait_s,
    )


def look_up(table: Mapping[str, T], name: str, key: str) -> T:
    """Return the entry, or raise `InputError` with all names in the table."""
    entry = table.get(name)
    if entry is None:
        raise InputError(f"{key}: there is no '{name}'; it takes {', '.join(sorted(table))}")
    return entry


def _make_queueing(policy: type[Queueing], params: Params, seed: int, domain: str) -> Queueing:
    """Make the policy of a domain, with its own generator. A named function, so that a scheduler can be pickled."""
    return policy(params, Random(f"{seed}/{domain}"))


def _make_sharing(settings: PolicySettings) -> Sharing:
    sharing = look_up(SHARING, settings.sharing, "sharing")
    return sharing(make_params(sharing.params_type, settings.sharing, settings.params.get(settings.sharing, {})))


def _make_packing(settings: PolicySettings) -> Packing:
    packing = look_up(PACKING, settings.packing, "packing")
    return packing(make_params(packing.params_type, settings.packing, settings.params.get(settings.packing, {})))


def _make_prefetching(settings: PolicySettings) -> Prefetching:
    name = settings.prefetching
    prefetching = look_up(PREFETCHING, name, "prefetching")
    return prefetching(make_params(prefetching.params_type, name, settings.params.get(name, {})))


def _make_admission(settings: PolicySettings) -> Admission:
    name = settings.admission
    admission = look_up(ADMISSION, name, "admission")
    params = make_params(admission.params_type, name, settings.params.get(name, {}))
    return admission(params, Random(f"{settings.seed}/admission"))


def _make_eviction(name: str, settings: PolicySettings) -> Callable[[], Eviction[Any]]:
    eviction: type[Eviction[Any]] = look_up(EVICTION, name, "eviction")
    params = make_params(eviction.params_type, name, settings.params.get(name, {}))
    return partial(eviction, params)
