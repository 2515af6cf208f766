"""Policies from a file and from an installed package."""

import sys

import pytest

from aliquot.assemble import assemble
from aliquot.config import PolicySettings
from aliquot.core.errors import InputError
from aliquot.core.interfaces import Queueing
from aliquot.live.invocations.journal import snapshot
from aliquot.policies.queueing import QUEUEING
from aliquot.policy_sources import absolute_name, find_policy

POLICY = """
from aliquot.core.interfaces import Params
from aliquot.policies.queueing.fcfs import Fcfs

class OwnParams(Params, frozen=True):
    patience: int = 3

class Own(Fcfs):
    params_type = OwnParams
"""


@pytest.fixture
def policy_file(tmp_path, monkeypatch):
    monkeypatch.setattr("aliquot.policy_sources._modules", {})
    path = tmp_path / "own_policy.py"
    path.write_text(POLICY)
    yield path
    sys.modules.pop("aliquot_policy_file_own_policy", None)


def test_a_policy_of_a_file_is_assembled_with_its_parameters(policy_file):
    name = f"{policy_file}:Own"
    scheduler = assemble(PolicySettings(name, params={"Own": {"patience": "7"}}))
    assert scheduler.policy_names[0] == "Own"
    assert find_policy(QUEUEING, name, "queueing", Queueing) is find_policy(QUEUEING, name, "queueing", Queueing)
    with pytest.raises(InputError, match=r"Own\.haste: Own has no such parameter; it has patience"):
        assemble(PolicySettings(name, params={"Own": {"haste": "1"}}))


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("{}:Other", "has no class Other; it has OwnParams, Own"),
        ("{}:OwnParams", "OwnParams is no class that inherits from aliquot.core.interfaces.Queueing"),
        ("missing.py:Own", "policy: there is no file .*missing.py"),
        ("nobody", "policy: there is no 'nobody'; it takes affinity, .*, or a class in a file: FILE.py:CLASS"),
    ],
)
def test_a_policy_that_is_not_there_is_refused_with_what_is(policy_file, name, complaint):
    with pytest.raises(InputError, match=complaint):
        assemble(PolicySettings(name.format(policy_file)))


def test_a_file_that_cannot_be_imported_says_why_and_can_be_mended(policy_file):
    policy_file.write_text("import no_such_module_at_all\n")
    with pytest.raises(InputError, match="cannot be imported: ModuleNotFoundError: No module named 'no_such_module"):
        assemble(PolicySettings(f"{policy_file}:Own"))
    policy_file.write_text(POLICY)
    assert assemble(PolicySettings(f"{policy_file}:Own")).policy_names[0] == "Own"


def test_two_files_of_one_name_are_refused(policy_file, tmp_path):
    other = tmp_path / "other" / policy_file.name
    other.parent.mkdir()
    other.write_text(POLICY)
    assemble(PolicySettings(f"{policy_file}:Own"))
    with pytest.raises(InputError, match="have the same name; rename one of them"):
        assemble(PolicySettings(f"{other}:Own"))


def test_an_installed_package_brings_a_policy(tmp_path, monkeypatch):
    package = tmp_path / "own_policies-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: own-policies\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[aliquot.policies.queueing]\nown = own_policies:Own\n")
    (tmp_path / "own_policies.py").write_text(POLICY)
    monkeypatch.syspath_prepend(tmp_path)
    assert assemble(PolicySettings("own")).policy_names[0] == "own"
    sys.modules.pop("own_policies")


def test_a_journal_with_such_a_policy_is_read_after_the_user_has_named_it(policy_file, monkeypatch):
    settings = PolicySettings(f"{policy_file}:Own")
    head = snapshot.read(snapshot.take(_with_a_domain(settings), settings, now_ms=0))
    assert snapshot.restore(head).policy_names[0] == "Own"
    monkeypatch.setattr("aliquot.policy_sources._modules", {})
    with pytest.raises(InputError, match=r"written with the policy .*:Own, which .*; name each such policy: --policy"):
        snapshot.restore(head)


def _with_a_domain(settings):
    """A scheduler that holds the policy's class, as every one does that has a device."""
    from aliquot.testing import Harness, device, function

    harness = Harness(settings.queueing, devices=[device()], functions=[function("f")])
    harness.call("f")
    return harness.scheduler


def test_the_whole_path_is_kept_for_a_server_that_runs_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute_name("mine.py:Own") == f"{tmp_path}/mine.py:Own"
    assert absolute_name("fcfs") == "fcfs"
