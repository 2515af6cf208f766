"""The ring of records in a usage file: record N is at place N modulo the capacity, so the newest overwrite the oldest.

The newest record is found by the records' numbers. No pointer to it is stored, so a killed server leaves nothing
inconsistent.
"""

from collections.abc import Callable, Iterator
from math import isqrt

from aliquot.live.usage.records import HEAD_BYTES, RECORD_BYTES, number_of

Fetch = Callable[[int], bytes]  # returns the record at a place, which may be incomplete at the file's end


def cycle_of(capacity: int) -> int:
    """Return the number at which numbering restarts, a multiple of the capacity."""
    return 2**32 // capacity * capacity


def offset_of(place: int) -> int:
    return HEAD_BYTES + place * RECORD_BYTES


def next_number(fetch: Fetch, capacity: int, written: int) -> int:
    """Return the number of the next record, given how many places have been written at least once."""
    cycle = cycle_of(capacity)
    stride = max(1, isqrt(written))
    for step in (stride, 1):  # the second only if all records of the first are torn
        numbers = _numbers(fetch, capacity, range(0, written, step))
        if numbers:
            newest = _newest(numbers, cycle)
            # Search twice the stride, because the record after the stride may be torn.
            beyond = [(newest + ahead) % capacity for ahead in range(1, min(2 * stride, capacity))]
            return (_newest([newest, *_numbers(fetch, capacity, beyond)], cycle) + 1) % cycle
    return 0


def newest_first(fetch: Fetch, capacity: int, written: int) -> Iterator[bytes]:
    """Yield all intact records, the newest first. Torn and overwritten records are skipped."""
    cycle = cycle_of(capacity)
    end = next_number(fetch, capacity, written)
    for back in range(1, min(capacity, written) + 1):
        number = (end - back) % cycle
        record = fetch(number % capacity)
        if number_of(record) == number:
            yield record


def _numbers(fetch: Fetch, capacity: int, places: range | list[int]) -> list[int]:
    found = ((place, number_of(fetch(place))) for place in places)
    return [number for place, number in found if number is not None and number % capacity == place]


def _newest(numbers: list[int], cycle: int) -> int:
    return max(numbers, key=lambda number: _ahead(number, numbers[0], cycle))


def _ahead(number: int, of: int, cycle: int) -> int:
    """Return how far a number is ahead of another. Numbers in a file are never half a cycle apart."""
    return (number - of + cycle // 2) % cycle - cycle // 2
