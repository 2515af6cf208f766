"""Definitions of workflows: the machine of each, by the digest of its text."""

import hashlib
from collections import OrderedDict

import msgspec
from msgspec import Struct

from aliquot.core.units import MIB
from aliquot.live.invocations.workflows.records import ExecutionInfo
from aliquot.workflow.language import Machine
from aliquot.workflow.language.checked import checked_machine

MAX_DEFINITION_BYTES = MIB
MAX_CACHED_BYTES = 32 * MIB  # of the texts of definitions whose machines are kept


class Definition(Struct, frozen=True):
    """A definition that can run: its text, and its machine."""

    digest: str
    text: bytes
    machine: Machine


def digest_of(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def machine_of(text: bytes) -> Machine:
    """Return a new machine of a definition that was checked when it was deployed."""
    return checked_machine(msgspec.json.decode(text))


def with_timeout(machine: Machine, info: ExecutionInfo) -> Machine:
    """Return the machine with the time that this execution may take."""
    if info.timeout_s is None:
        return machine
    return Machine(start=machine.start, states=machine.states, timeout_s=info.timeout_s, comment=machine.comment)


class Definitions:
    """Makes the machines of definitions, and keeps those that were used last."""

    def __init__(self) -> None:
        self._by_digest: OrderedDict[str, Definition] = OrderedDict()
        self._digests: dict[str, str] = {}  # by revision of the action
        self._bytes = 0

    def of_action(self, revision: str, code: str) -> Definition:
        """Return the definition of an action's revision."""
        digest = self._digests.get(revision)
        found = self._by_digest.get(digest) if digest is not None else None
        if found is not None:
            self._by_digest.move_to_end(found.digest)
            return found
        text = code.encode()
        made = self.of_text(digest_of(text), text)
        if len(self._digests) > 2 * len(self._by_digest) + 1000:  # revisions that are no longer called
            self._digests.clear()
        self._digests[revision] = made.digest
        return made

    def of_text(self, digest: str, text: bytes) -> Definition:
        """Return the definition with this digest and text."""
        found = self._by_digest.get(digest)
        if found is None:
            found = self._by_digest[digest] = Definition(digest, text, machine_of(text))
            self._bytes += len(text)
            while self._bytes > MAX_CACHED_BYTES and len(self._by_digest) > 1:
                self._bytes -= len(self._by_digest.popitem(last=False)[1].text)
        return found
