"""Where a usage file's records lie: number N at place N modulo the capacity, the oldest overwritten by the newest.

Nothing in the file says where the newest is: that is found by the records' numbers, so that there is no second thing to
be kept in step, and a server that was killed leaves nothing wrong.
"""

from collections.abc import Callable, Iterator
from math import isqrt

from aliquot.live.usage.records import HEAD_BYTES, RECORD_BYTES, number_of

Fetch = Callable[[int], bytes]  # the record at a place; less than one, or none, beyond the file's end


def cycle_of(capacity: int) -> int:
    """Numbers count up to this and begin again, in step with the places."""
    return 2**32 // capacity * capacity


def offset_of(place: int) -> int:
    return HEAD_BYTES + place * RECORD_BYTES


def next_number(fetch: Fetch, capacity: int, written: int) -> int:
    """That of the record to be written next, where so many places have been written at least once."""
    cycle = cycle_of(capacity)
    stride = max(1, isqrt(written))
    for step in (stride, 1):  # the second only where all that were looked at are torn
        numbers = _numbers(fetch, capacity, range(0, written, step))
        if numbers:
            newest = _newest(numbers, cycle)
            # Twice as far as the next that was looked at: that one may be torn.
            beyond = [(newest + ahead) % capacity for ahead in range(1, min(2 * stride, capacity))]
            return (_newest([newest, *_numbers(fetch, capacity, beyond)], cycle) + 1) % cycle
    return 0


def newest_first(fetch: Fetch, capacity: int, written: int) -> Iterator[bytes]:
    """All whole records, from the newest back. What is torn, or was overtaken, is passed over."""
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
    """How far it is ahead; the numbers in a file are never half a cycle apart."""
    return (number - of + cycle // 2) % cycle - cycle // 2
