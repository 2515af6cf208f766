"""The order of JSON checks: each tenant gets its part of the bytes, and nobody saves up turns."""

from aliquot.live.bodies.check_queue import CheckQueue


def drained(queue):
    order = []
    while queue:
        order.append(queue.take())
    return order


def test_the_bodies_of_one_tenant_keep_their_order():
    queue = CheckQueue()
    for number in range(5):
        queue.add("a", number, 10 - number)
    assert drained(queue) == [0, 1, 2, 3, 4]


def test_tenants_get_the_same_number_of_bytes():
    queue = CheckQueue()
    for number in range(4):
        queue.add("large", f"large {number}", 10)
    for number in range(8):
        queue.add("small", f"small {number}", 5)
    order = drained(queue)
    assert order[0] == "large 0"
    for end in range(3, 12, 3):
        assert sum(name.startswith("large") for name in order[:end]) == end // 3, order


def test_a_tenant_that_comes_late_goes_next_but_saves_up_no_turns():
    queue = CheckQueue()
    for number in range(10):
        queue.add("greedy", f"greedy {number}", 10)
    taken = [queue.take() for _ in range(5)]
    assert taken == [f"greedy {number}" for number in range(5)]
    for number in range(3):
        queue.add("late", f"late {number}", 10)
    assert [queue.take() for _ in range(4)] == ["late 0", "greedy 5", "late 1", "greedy 6"]


def test_a_tenant_with_one_body_at_a_time_gets_no_more_than_others():
    queue = CheckQueue()
    for number in range(10):
        queue.add("patient", f"patient {number}", 10)
    order = []
    for number in range(6):
        if number % 2 == 0:
            queue.add("quick", "quick", 100)
        order.append(queue.take())
    assert order.count("quick") == 1, order
