"""The annotations of a call that is billed: device time and device memory, of functions and of kernel graphs."""

from typing import NamedTuple

from aliquot.core.model import CPU
from aliquot.live.catalogue.needs import parse_needs
from aliquot.live.invocations.activations import note
from aliquot.live.invocations.call import Call
from aliquot.live.store.records import Action


class DeviceUse(NamedTuple):
    """The part of each of its devices that a run of an action takes."""

    share: float
    held_bytes: int


class BillNotes:
    """Makes the annotations. The needs of an action are parsed once for each of its revisions."""

    def __init__(self) -> None:
        self._uses: dict[str, DeviceUse] = {}  # by revision

    def notes(self, call: Call, run_s: float) -> str:
        """Return `deviceSeconds` and `byteSeconds` of a run on devices, and nothing for one on the processors."""
        place = call.run.place
        if not place or place == (CPU,):
            return ""
        use = self._use(call.action)
        devices = len(place)
        return note("deviceSeconds", round(run_s * min(1.0, use.share) * devices, 6)) + note(
            "byteSeconds", round(run_s * use.held_bytes * devices)
        )

    def forget(self, action: Action) -> None:
        self._uses.pop(action.revision, None)

    def _use(self, action: Action) -> DeviceUse:
        found = self._uses.get(action.revision)
        if found is None:
            needs = parse_needs(action)
            found = self._uses[action.revision] = DeviceUse(needs.gpu_share, needs.gpu_memory_bytes + needs.run_bytes)
        return found
