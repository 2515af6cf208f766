"""Directories that the tests of the cache use, and an origin in memory."""

import pytest
from opened_origins import made
from scripted_origin import ScriptedOrigin, small_content


@pytest.fixture
def directory(tmp_path):
    """The directory of a cache, which does not exist yet."""
    return tmp_path / "cache"


@pytest.fixture
def source(tmp_path):
    """An empty directory of an origin."""
    root = tmp_path / "source"
    root.mkdir()
    return root


@pytest.fixture
def origin():
    """A scripted origin with a few small files."""
    files = {"a": small_content("a"), "b": small_content("b"), "deep/c": small_content("c", 999), "empty": b""}
    return ScriptedOrigin(files)


@pytest.fixture(autouse=True)
def closed_origins():
    """Close the origins that a test has opened by `origin_at`."""
    yield
    while made:
        made.pop().close()
