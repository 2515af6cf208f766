"""The findings of `aliquot doctor` on this machine."""

import os

from sandboxes import control_groups

from aliquot.live.node.doctor import examine


def test_every_layer_is_examined_and_what_is_missing_has_a_consequence(tmp_path):
    findings = {finding.name: finding for finding in examine(tmp_path / "not" / "yet")}
    assert {"kernel", "mount namespaces", "Landlock", "system call filter", "control groups", "disk"} <= set(findings)
    for finding in findings.values():
        assert finding.detail
        assert finding.ok or finding.consequence, finding
    assert not (tmp_path / "not").exists()
    assert not control_groups(f"aliquot-doctor-{os.getpid()}")
