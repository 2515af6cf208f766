"""`aliquot policies`: lists the policies, read from their tables."""

import sys
from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec.structs import fields

from aliquot.cli.console import output
from aliquot.core.admission.interfaces import Admission
from aliquot.core.interfaces import Batching, Eviction, KeepAlive, Packing, Params, Prefetching, Queueing, Sharing
from aliquot.core.provisioning.policy import Provisioning
from aliquot.policies.admission import ADMISSION
from aliquot.policies.batching import BATCHING
from aliquot.policies.eviction import EVICTION
from aliquot.policies.keepalive import KEEPALIVE
from aliquot.policies.packing import PACKING
from aliquot.policies.prefetching import PREFETCHING
from aliquot.policies.provisioning import PROVISIONING
from aliquot.policies.queueing import QUEUEING
from aliquot.policies.sharing import SHARING
from aliquot.policy_sources import installed_policies
from aliquot.tables import FittedTable

Policy: TypeAlias = (
    Queueing | KeepAlive | Eviction[Any] | Sharing | Packing | Prefetching | Admission | Batching | Provisioning
)


def policies() -> None:
    """List the policies with a description, their parameters and the defaults. Installed packages may bring more."""
    from aliquot.sim.clairvoyant import CLAIRVOYANT

    table = FittedTable(names=2, show_lines=False)
    for column in ("kind", "name", "what it does", "parameters (--set name.parameter=value)"):
        table.add_column(column)
    kinds: Mapping[str, Mapping[str, type[Policy]]] = {
        "queueing": QUEUEING,
        "queueing, simulated only": CLAIRVOYANT,
        "keep-alive": KEEPALIVE,
        "eviction": EVICTION,
        "sharing": SHARING,
        "packing": PACKING,
        "prefetching": PREFETCHING,
        "admission": ADMISSION,
        "batching": BATCHING,
        "provisioning": PROVISIONING,
    }
    for kind, entries in kinds.items():
        installed = {each.name: each.load() for each in installed_policies(kind.replace("-", ""))}
        for name, policy in {**entries, **installed}.items():
            table.add_row(kind, f"[bold]{name}[/]", _purpose(policy), _parameters(policy.params_type))
        table.add_section()
    output.print(table)


def _purpose(policy: type) -> str:
    """Return the first paragraph of the docstring of a policy or of its module."""
    text = policy.__dict__.get("__doc__") or sys.modules[policy.__module__].__doc__ or ""
    return " ".join(text.split("\n\n")[0].split())


def _parameters(kind: type[Params]) -> str:
    return ", ".join(f"{field.encode_name}={field.default}" for field in fields(kind))
