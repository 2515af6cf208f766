"""Names as they come in a path: split first, decoded then, checked last."""

import re
from urllib.parse import unquote_to_bytes

from aliquot.live.gateway.refusal import Refusal, malformed
from aliquot.live.records import FullName

LONGEST = 256
ACTIVATION_ID = 32
_CHARACTER = "A-Za-z0-9_"  # spelled out: not all who read the pattern in the OpenAPI page take \\w for these
PATTERN = f"[{_CHARACTER}]|[{_CHARACTER}][{_CHARACTER}@ .&-]{{0,254}}[{_CHARACTER}@.&-]"
_NAME = re.compile(PATTERN)
_HEX = re.compile(r"[0-9a-f]*")


def decoded(segment: bytes) -> str:
    """One segment of a raw path; what is not UTF-8 cannot be a name."""
    if b"%" in segment:
        segment = unquote_to_bytes(segment)
    try:
        return segment.decode()
    except UnicodeDecodeError as error:
        raise Refusal(400, "The name of the entity contains illegal characters.") from error


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def is_path(text: str) -> bool:
    """Names between slashes; slashes at the ends and double ones do not count."""
    parts = [part for part in text.split("/") if part]
    return bool(parts) and all(len(part) <= LONGEST and is_name(part) for part in parts)


def read_full_name(text: str, own: str) -> FullName:
    """`/namespace/name` or `/namespace/package/name`, as it stands in a body; `_` stands for one's own namespace."""
    if not is_path(text):
        raise malformed("fully qualified name malformed")
    namespace, *names = [part for part in text.split("/") if part]
    if not names:
        raise malformed(
            "The fully qualified name of the entity must contain at least the namespace and the name of the entity."
        )
    return FullName(own if namespace == "_" else namespace, "/".join(names))


def check_name(text: str) -> str:
    if len(text) > LONGEST:
        raise Refusal(400, f"Name segement longer than allowed: {len(text)} > {LONGEST}.")  # (sic)
    if not is_name(text):
        raise Refusal(400, "The name of the entity contains illegal characters.")
    return text


def check_activation_id(text: str) -> str:
    if len(text) != ACTIVATION_ID:
        raise Refusal(400, f"Activation id length is {len(text)} but must be {ACTIVATION_ID}.")
    if not _HEX.fullmatch(text):
        raise Refusal(400, "The activation id is not valid.")
    return text


def check_namespace(text: str) -> str:
    if len(text) > LONGEST or not is_name(text):
        raise Refusal(400, "The namespace contains illegal characters.")
    return text
