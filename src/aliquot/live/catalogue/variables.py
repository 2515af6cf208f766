"""Environment variables of functions: the names that they may set."""

import re

VARIABLE_PATTERN = "[A-Za-z_][A-Za-z0-9_]{0,255}"
VARIABLE_NAMES = (
    "letters, digits and '_', no digit first, at most 256; not TMPDIR, nor one that begins with __OW_ or ALIQUOT_"
)
_VARIABLE = re.compile(VARIABLE_PATTERN)
_OWN_PREFIXES = ("__OW_", "ALIQUOT_")
_OWN = "TMPDIR"  # the sandbox's directory for files


def is_variable(name: str) -> bool:
    """Return whether a function may set this variable. The platform's own variables are its own."""
    return _VARIABLE.fullmatch(name) is not None and name != _OWN and not name.startswith(_OWN_PREFIXES)


def is_variable_value(value: object) -> bool:
    """Return whether a value is text that an environment can hold."""
    return isinstance(value, str) and "\0" not in value and _is_unicode(value)


def _is_unicode(value: str) -> bool:
    """Return whether a text has no lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
