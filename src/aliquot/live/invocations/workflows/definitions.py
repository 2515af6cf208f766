"""Definitions of workflows: the compiled machine of each, by the digest of its text."""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from aliquot.core.units import MIB
from aliquot.workflow.errors import DefinitionError
from aliquot.workflow.language import Complaint, Machine, read_definition

MAX_DEFINITION_BYTES = MIB
MAX_CACHED_BYTES = 32 * MIB  # of the texts of compiled definitions


class Definition(Struct, frozen=True):
    """A definition that can run: its text, and the machine it was compiled into."""

    digest: str
    text: bytes
    machine: Machine


def digest_of(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def check_definition(text: str) -> tuple[Machine | None, Sequence[Complaint]]:
    """Return the machine of a definition with warnings, or None with all its mistakes."""
    size = len(text.encode())
    if size > MAX_DEFINITION_BYTES:
        reason = f"it has {size} bytes; a definition has at most {MAX_DEFINITION_BYTES}"
        return None, [Complaint("", "definition", reason)]
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return None, [Complaint("", "definition", f"it is not JSON: {error}")]
    try:
        return read_definition(value)
    except RecursionError:
        return None, [Complaint("", "definition", "it is nested too deep")]


def compile_definition(text: bytes) -> Machine:
    """Compile a definition that was checked when it was deployed. Raises `DefinitionError`."""
    machine, complaints = check_definition(text.decode())
    if machine is None:
        raise DefinitionError([complaint for complaint in complaints if not complaint.warning])
    return machine


class Definitions:
    """Compiles definitions, and keeps those that were used last."""

    def __init__(self) -> None:
        self._by_digest: OrderedDict[str, Definition] = OrderedDict()
        self._digests: dict[str, str] = {}  # by revision of the action
        self._bytes = 0

    def of_action(self, revision: str, code: str) -> Definition:
        """Return the definition of an action's revision. Raises `DefinitionError`."""
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
        """Return the definition with this digest and text. Raises `DefinitionError`."""
        found = self._by_digest.get(digest)
        if found is None:
            found = self._by_digest[digest] = Definition(digest, text, compile_definition(text))
            self._bytes += len(text)
            while self._bytes > MAX_CACHED_BYTES and len(self._by_digest) > 1:
                self._bytes -= len(self._by_digest.popitem(last=False)[1].text)
        return found
