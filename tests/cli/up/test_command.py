"""How `bedplate up` starts what it runs."""

from __future__ import annotations

from pathlib import Path

from bedplate.cli.up import command
from bedplate.cloud.manager import deployed, options


def test_a_machine_that_is_busy_for_a_while_does_not_end_it(tmp_path: Path) -> None:
    command._assemble(tmp_path / "kubeconfig", tmp_path / "nvidia-bmm.yaml")
    flags = (tmp_path / deployed.FLAGS_FILE).read_text().splitlines()
    generic = options.read(flags).options.generic
    assert generic.leader_elect_renew_deadline >= 20
    # What a killed one leaves expires while the next one still waits for its nodes.
    assert generic.leader_elect_lease_duration <= 30
