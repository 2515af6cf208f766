"""Parts of the time of calls, read from their records."""

from aliquot.cli.latency import _at, _times
from aliquot.cli.recent_calls import scan_calls, took_ms


def call(wait, run, init=0, data=0):
    notes = {"waitTime": wait, "deviceTime": run, **({"initTime": init} if init else {}), "dataTime": data}
    return {"duration": run, "annotations": [{"key": key, "value": value} for key, value in notes.items()]}


def test_parts_add_up_to_the_whole_and_parts_that_no_call_has_are_left_out():
    found = _times([call(10, 100), call(300, 50, init=200), call(0, 1)])
    assert found == {"waiting": [0, 10, 300], "start": [0, 0, 200], "run": [1, 50, 100], "whole": [1, 110, 550]}
    assert "files" in _times([call(0, 10, data=4)])


def test_percentiles_are_times_of_calls():
    times = [float(number) for number in range(1, 101)]
    assert [_at(times, share) for share in (0.5, 0.95, 0.99, 1.0)] == [51, 96, 100, 100]
    assert _at([7.0], 0.5) == 7


class Pages:
    """Answers lists of activations in pages, as the platform does."""

    def __init__(self, count):
        self.calls = [call(number, 1) for number in range(count)]
        self.queries = []

    def send(self, method, path, what, query):
        self.queries.append(query)
        return self.calls[query["skip"] : query["skip"] + query["limit"]]


def test_calls_are_read_page_by_page_up_to_one_time():
    pages = Pages(450)
    assert len(scan_calls(pages, {"name": "f"}, 5000)) == 450
    assert [query["skip"] for query in pages.queries] == [0, 200, 400]
    assert len({query["upto"] for query in pages.queries}) == 1
    assert len(scan_calls(pages, {}, 250)) == 250
    assert took_ms(pages.calls[7]) == 8
