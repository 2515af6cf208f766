"""Whether what a command prints on a terminal of 80 columns has every word that a wide terminal shows."""

import io
import re

from rich.console import Console

COLUMNS, WIDE_COLUMNS = 80, 400
TOO_LONG = 50  # characters of a word that may be folded
LINES_AND_BARS = re.compile(r"[\u2500-\u259f\u2800-\u28ff·]+")  # their length depends on the width


def rendered(objects, options, columns):
    console = Console(width=columns, file=io.StringIO(), color_system=None)
    console.print(*objects, **options)
    return console.file.getvalue()


def words(text):
    return LINES_AND_BARS.sub(" ", text).split()


def lost_words(objects, options):
    """Return the words that are cut or missing at 80 columns. Long words and paths may be folded, but not cut."""
    narrow = rendered(objects, options, COLUMNS)
    found, joined = set(words(narrow)), "".join(words(narrow))
    lost = [word for word in words(rendered(objects, options, WIDE_COLUMNS)) if word not in found]
    return [word for word in lost if not _may_be_folded(word) or word[: TOO_LONG // 2] not in joined]


def _may_be_folded(word):
    return len(word) > TOO_LONG or "/" in word[1:]
