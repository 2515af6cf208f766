"""The folder of a volume: here, in a sandbox, and with wrong names."""

import pytest

import aliquot
from aliquot.sdk.errors import UsageError


def test_here_it_is_a_folder_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ALIQUOT_VOLUMES", raising=False)
    folder = aliquot.volume("models")
    assert (folder, folder.is_dir()) == (tmp_path / ".aliquot" / "volumes" / "models", True)
    monkeypatch.setenv("ALIQUOT_VOLUMES", str(tmp_path / "mine"))
    assert aliquot.volume("models") == tmp_path / "mine" / "models"


def test_in_a_sandbox_it_must_be_named_by_the_function(tmp_path, monkeypatch):
    monkeypatch.setenv("__OW_NAMESPACE", "guest")
    monkeypatch.setenv("ALIQUOT_VOLUMES", str(tmp_path))
    (tmp_path / "models").mkdir()
    assert aliquot.volume("models") == tmp_path / "models"
    with pytest.raises(UsageError, match=r'does not name other; add volumes=\["other"\] to its decorator'):
        aliquot.volume("other")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a" * 101])
def test_a_wrong_name_is_told(name):
    with pytest.raises(UsageError, match="is not the name of a volume"):
        aliquot.volume(name)
