"""A pytest plugin for Lithops' own tests: the texts that they map come from the server that WORDS_URL names."""

import os

FILES = 5


def pytest_collection_finish():
    """Replace the addresses, which are on a host that a test machine need not reach."""
    from lithops.tests import test_map_reduce

    test_map_reduce.TEST_FILES_URLS[:] = [f"{os.environ['WORDS_URL']}/{number}.txt" for number in range(FILES)]
