"""Decode and check the names in requests. The refusals have OpenWhisk's texts.

A path is split first. Then each segment is decoded and checked.
"""

import re
from urllib.parse import unquote_to_bytes

from aliquot.live.catalogue.names import MAX_NAME_LENGTH, is_name, is_path
from aliquot.live.gateway.http.refusal import Refusal, malformed
from aliquot.live.store.records import FullName

ACTIVATION_ID_LENGTH = 32
CONSOLE_COOKIE = "aliquot_console"  # of the console, whose port is another one of the same host
_HEX = re.compile(r"[0-9a-f]*")


def decoded(segment: bytes) -> str:
    """Decode one segment of a raw path. Raises a 400 if it is not UTF-8."""
    if b"%" in segment:
        segment = unquote_to_bytes(segment)
    try:
        return segment.decode()
    except UnicodeDecodeError as error:
        raise Refusal(400, "The name of the entity contains illegal characters.") from error


def read_full_name(text: str, own: str) -> FullName:
    """Read `/namespace/name` or `/namespace/package/name` from a body. `_` stands for the caller's namespace."""
    parts = [part for part in text.split("/") if part]
    if not parts:
        raise _requirement("path undefined")
    if not is_path(text):
        raise _requirement(f"path contains invalid parts {', '.join(parts)}")
    namespace, *names = parts
    if not names:
        raise _requirement(
            "The fully qualified name of the entity must contain at least the namespace and the name of the entity."
        )
    return FullName(own if namespace == "_" else namespace, "/".join(names))


def _requirement(why: str) -> Refusal:
    return malformed(f"requirement failed: {why}")


def check_name(text: str) -> str:
    """Return the name, or raise a 400."""
    if len(text) > MAX_NAME_LENGTH:
        raise Refusal(400, f"Name segement longer than allowed: {len(text)} > {MAX_NAME_LENGTH}.")  # (sic)
    if not is_name(text):
        raise Refusal(400, "The name of the entity contains illegal characters.")
    return text


def check_activation_id(text: str) -> str:
    """Return the activation id, or raise a 400."""
    if len(text) != ACTIVATION_ID_LENGTH:
        raise Refusal(400, f"Activation id length is {len(text)} but must be {ACTIVATION_ID_LENGTH}.")
    if not _HEX.fullmatch(text):
        raise Refusal(400, "The activation id is not valid.")
    return text


def check_namespace(text: str) -> str:
    """Return the namespace's name, or raise a 400."""
    if len(text) > MAX_NAME_LENGTH:
        raise Refusal(400, f"Namespace longer than allowed: {len(text)} > {MAX_NAME_LENGTH}.")
    if not is_name(text):
        raise Refusal(400, "The namespace contains illegal characters.")
    return text
