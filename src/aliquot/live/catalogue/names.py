"""Entity names: the pattern they follow, and fully qualified names."""

import re

MAX_NAME_LENGTH = 256
_CHARACTER = "A-Za-z0-9_"  # spelled out, because not every reader of the OpenAPI page takes \\w for these
NAME_PATTERN = f"[{_CHARACTER}]|[{_CHARACTER}][{_CHARACTER}@ .&-]{{0,254}}[{_CHARACTER}@.&-]"
_NAME = re.compile(NAME_PATTERN)


def is_name(text: str) -> bool:
    """Check the characters of a name, not its length."""
    return _NAME.fullmatch(text) is not None


def is_path(text: str) -> bool:
    """Check names separated by slashes. Empty segments are ignored."""
    parts = [part for part in text.split("/") if part]
    return bool(parts) and all(len(part) <= MAX_NAME_LENGTH and is_name(part) for part in parts)
