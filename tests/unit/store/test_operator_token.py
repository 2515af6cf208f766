"""The operator's token: durable, private and replaceable."""

import stat

import pytest

from aliquot.core.errors import InputError
from aliquot.live.store.operator_token import OperatorToken


def test_a_token_survives_a_restart_in_a_private_file(tmp_path):
    path = tmp_path / "operator.token"
    first = OperatorToken.load(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().strip() == first.text
    again = OperatorToken.load(path)
    assert again.matches(first.text.encode())
    assert not again.matches(b"another")


def test_a_file_that_others_can_read_is_made_private(tmp_path):
    path = tmp_path / "operator.token"
    OperatorToken.load(path)
    path.chmod(0o644)
    OperatorToken.load(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_rotated_token_replaces_the_old_one_for_good(tmp_path):
    path = tmp_path / "operator.token"
    token = OperatorToken.load(path)
    told = []
    token.on_rotated(told.append)
    old, new = token.text, token.rotate()
    assert told == [new]
    for one in (token, OperatorToken.load(path)):
        assert one.matches(new.encode())
        assert not one.matches(old.encode())


@pytest.mark.parametrize("content", ["", "short\n", "two words that are long enough for a token", "é" * 40])
def test_a_file_without_a_token_is_refused(tmp_path, content):
    path = tmp_path / "operator.token"
    path.write_text(content)
    with pytest.raises(InputError, match=r"operator\.token.*remove"):
        OperatorToken.load(path)


def test_an_empty_token_admits_no_caller():
    assert not OperatorToken("").matches(b"")
