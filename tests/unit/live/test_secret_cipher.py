"""Encryption of secrets: the key file, and values that are opened only where they belong."""

import pytest

from aliquot.core.errors import InputError
from aliquot.live.catalogue.secret_cipher import SecretCipher, UnreadableSecretError


def test_a_value_is_opened_with_the_key_file_alone_and_only_for_its_own_name(tmp_path):
    path = tmp_path / "secrets.key"
    sealed = SecretCipher(path).seal(b"value", "lab/hf")
    assert b"value" not in sealed
    assert path.stat().st_mode & 0o777 == 0o600
    assert SecretCipher(path).open(sealed, "lab/hf") == b"value"
    for moved in ("lab/other", "thief/hf"):
        with pytest.raises(UnreadableSecretError, match="another key file"):
            SecretCipher(path).open(sealed, moved)
    with pytest.raises(UnreadableSecretError, match="missing"):
        SecretCipher(None).open(sealed, "lab/hf")


def test_the_same_value_is_sealed_differently_each_time(tmp_path):
    cipher = SecretCipher(tmp_path / "secrets.key")
    assert cipher.seal(b"value", "lab/hf") != cipher.seal(b"value", "lab/hf")


@pytest.mark.parametrize("content", ["", "short", "not base64 !", "YWJj"])
def test_a_damaged_key_file_stops_the_start(tmp_path, content):
    path = tmp_path / "secrets.key"
    path.write_text(content)
    with pytest.raises(InputError, match=r"--data: .*secrets\.key .*; restore it from a backup"):
        SecretCipher(path)
