"""Snapshots of the scheduler, from which a replay begins.

The state is pickled, because it is a graph of plain objects that refer to each other. Only classes of the core and the
policies may be unpickled, so that a journal from elsewhere cannot run code. A policy from a file or another package is
unpickled only if the user has named it.
"""

import io
import pickle
import sys
from enum import Enum

import msgspec
from msgspec import Struct

from aliquot.config import PolicySettings
from aliquot.core.errors import InputError
from aliquot.core.scheduler import Scheduler
from aliquot.policy_sources import is_policy_module
from aliquot.version import __version__

FORMAT = 9  # of a journal segment; `format.py` lists the formats

_OWN = ("aliquot.core.", "aliquot.policies.")
_OTHERS = {
    ("aliquot.assemble", "_make_queueing"),
    ("builtins", "set"),
    ("collections", "OrderedDict"),
    ("collections", "deque"),
    ("functools", "partial"),
    ("random", "Random"),
}


class SchedulerSnapshot(Struct, frozen=True):
    """The head of a journal segment."""

    version: str
    settings: PolicySettings
    taken_ms: int  # epoch
    state: bytes
    format: int = 1  # of the journal segment; the first format did not have this field


def take(scheduler: Scheduler, settings: PolicySettings, *, now_ms: int) -> bytes:
    """Return the head of a new journal segment, with the scheduler's current state."""
    state = pickle.dumps(scheduler, protocol=5)
    return msgspec.msgpack.encode(SchedulerSnapshot(__version__, settings, now_ms, state, FORMAT))


def read(body: bytes) -> SchedulerSnapshot:
    """Read the head of a segment. Only the version that took a snapshot knows what its parts mean."""
    try:
        head = msgspec.msgpack.decode(body, type=SchedulerSnapshot)
    except msgspec.DecodeError as error:
        raise InputError(f"journal: a segment does not begin with a snapshot: {error}") from error
    if head.version != __version__ or head.format > FORMAT:
        raise InputError(f"journal: written by aliquot {head.version}, this is {__version__}; use that version")
    return head


def restore(snapshot: SchedulerSnapshot) -> Scheduler:
    """Return the scheduler as it was when the snapshot was taken, by this version and in today's format."""
    try:
        scheduler = _Unpickler(io.BytesIO(snapshot.state)).load()
    except _OtherPolicyError as error:
        raise InputError(
            f"journal: it was written with the policy {snapshot.settings.queueing}, which is not part of aliquot; "
            "name each such policy: --policy FILE.py:CLASS"
        ) from error
    except (pickle.UnpicklingError, AttributeError, EOFError, ImportError, IndexError, TypeError) as error:
        raise InputError(f"journal: a snapshot cannot be read: {error}") from error
    if not isinstance(scheduler, Scheduler):
        raise InputError(f"journal: a snapshot holds a {type(scheduler).__name__}, not a scheduler")
    return scheduler


def _member(kind: object, name: str) -> Enum:
    """Replace `getattr` in a snapshot. Before version 3.11.4 Python pickles the members of an enum by it."""
    if not (isinstance(kind, type) and issubclass(kind, Enum)):
        raise pickle.UnpicklingError(f"{name} of {kind!r} does not belong into a snapshot")
    return kind[name]


class _OtherPolicyError(Exception):
    """A snapshot has a class that is neither ours nor of a policy that the user has named."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if (module, name) == ("builtins", "getattr"):
            return _member
        if ((module.startswith(_OWN) or is_policy_module(module)) and "." not in name) or (module, name) in _OTHERS:
            return super().find_class(module, name)
        if module not in sys.stdlib_module_names and not module.startswith("aliquot."):
            raise _OtherPolicyError(module)
        raise pickle.UnpicklingError(f"{module}.{name} does not belong into a snapshot")
