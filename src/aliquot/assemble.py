"""Assemble a scheduler with its policies from settings, for both shells."""

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, TypeVar

from aliquot.config import PolicySettings, make_params
from aliquot.core.admission.interfaces import Admission
from aliquot.core.errors import InputError
from aliquot.core.interfaces import Batching, Eviction, KeepAlive, Packing, Params, Prefetching, Queueing, Sharing
from aliquot.core.provisioning.policy import Provisioning
from aliquot.core.scheduler import Scheduler
from aliquot.policies.admission import ADMISSION
from aliquot.policies.batching import BATCHING
from aliquot.policies.eviction import EVICTION
from aliquot.policies.keepalive import KEEPALIVE
from aliquot.policies.packing import PACKING
from aliquot.policies.prefetching import PREFETCHING
from aliquot.policies.provisioning import PROVISIONING
from aliquot.policies.queueing import QUEUEING
from aliquot.policies.sharing import SHARING
from aliquot.policy_sources import find_policy, short_name

T = TypeVar("T")
P = TypeVar("P", bound=Params)


def assemble(settings: PolicySettings, queueing: Mapping[str, type[Queueing]] = QUEUEING) -> Scheduler:
    """Make a scheduler from the settings. `queueing` may have more policies than the usual table."""
    policy = find_policy(queueing, settings.queueing, "queueing", Queueing)
    params = _params(policy.params_type, settings.queueing, settings)
    companions = policy.companions(params)

    keepalive_name = companions.keepalive if settings.keepalive is None else settings.keepalive
    keepalive = find_policy(KEEPALIVE, keepalive_name, "keepalive", KeepAlive)
    own = companions.keepalive_params if keepalive_name == companions.keepalive else {}
    keepalive_params = _params(keepalive.params_type, keepalive_name, settings, own)
    eviction_name = companions.eviction if settings.eviction is None else settings.eviction
    chosen = (settings.sharing, settings.packing, settings.prefetching, settings.admission, settings.batching)
    return Scheduler(
        partial(_make_queueing, policy, params, settings.seed),
        keepalive(keepalive_params),
        _make_eviction(eviction_name, settings),
        _make_sharing(settings),
        _make_packing(settings),
        _make_prefetching(settings),
        _make_admission(settings),
        _make_batching(settings),
        _make_provisioning(settings),
        companions.pool_slots if settings.pool_slots is None else settings.pool_slots or None,
        tuple(map(short_name, (settings.queueing, keepalive_name, eviction_name, *chosen))),
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


def _params(kind: type[P], policy: str, settings: PolicySettings, companion: Mapping[str, Any] | None = None) -> P:
    """Make the parameters of a policy: the user's, and those that its companion asks for."""
    name = short_name(policy)
    return make_params(kind, name, {**(companion or {}), **settings.params.get(name, {})})


def _make_sharing(settings: PolicySettings) -> Sharing:
    sharing = find_policy(SHARING, settings.sharing, "sharing", Sharing)
    return sharing(_params(sharing.params_type, settings.sharing, settings))


def _make_packing(settings: PolicySettings) -> Packing:
    packing = find_policy(PACKING, settings.packing, "packing", Packing)
    return packing(_params(packing.params_type, settings.packing, settings))


def _make_prefetching(settings: PolicySettings) -> Prefetching:
    prefetching = find_policy(PREFETCHING, settings.prefetching, "prefetching", Prefetching)
    return prefetching(_params(prefetching.params_type, settings.prefetching, settings))


def _make_admission(settings: PolicySettings) -> Admission:
    admission = find_policy(ADMISSION, settings.admission, "admission", Admission)
    params = _params(admission.params_type, settings.admission, settings)
    return admission(params, Random(f"{settings.seed}/admission"))


def _make_batching(settings: PolicySettings) -> Batching:
    name = settings.batching
    batching = find_policy(BATCHING, name, "batching", Batching)
    return batching(_params(batching.params_type, name, settings))


def _make_provisioning(settings: PolicySettings) -> Provisioning:
    provisioning = find_policy(PROVISIONING, settings.provisioning, "provisioning", Provisioning)
    return provisioning(_params(provisioning.params_type, settings.provisioning, settings))


def _make_eviction(name: str, settings: PolicySettings) -> Callable[[], Eviction[Any]]:
    eviction: type[Eviction[Any]] = find_policy(EVICTION, name, "eviction", Eviction)
    return partial(eviction, _params(eviction.params_type, name, settings))
