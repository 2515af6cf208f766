"""How sandboxes are kept to their parts of virtual devices here: the best of three ways that this machine offers."""

from aliquot.live.device.parts.base import ROOT, Parts
from aliquot.live.device.parts.plain import PlainParts
from aliquot.live.device.parts.v1 import TREES, V1Parts
from aliquot.live.device.parts.v2 import V2Parts
from aliquot.live.device.unified import is_mounted


def open_parts(tag: str) -> Parts:
    """`tag` is the node's own on this machine."""
    missing = [name for name in TREES if not (ROOT / name).is_dir()]
    try:
        if not missing:
            return V1Parts(tag)
        if is_mounted():
            return V2Parts.claim(tag)
        return PlainParts(f"{ROOT}: no controller {', '.join(missing)}")
    except OSError as error:
        return PlainParts(f"{error.filename or ROOT}: {error.strerror}")


__all__ = ["Parts", "open_parts"]
