"""How `bedplate up` starts what it runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from bedplate.cli.up import command
from bedplate.cloud.manager import deployed, options
from bedplate.core import errors
from bedplate.runtime.leaderelection import LeadershipLost


def test_a_machine_that_is_busy_for_a_while_does_not_end_it(tmp_path: Path) -> None:
    command._assemble(tmp_path / "kubeconfig", tmp_path / "nvidia-bmm.yaml")
    flags = (tmp_path / deployed.FLAGS_FILE).read_text().splitlines()
    generic = options.read(flags).options.generic
    assert generic.leader_elect_renew_deadline >= 20
    # What a killed one leaves expires while the next one still waits for its nodes.
    assert generic.leader_elect_lease_duration <= 30


class Played:
    """A manager whose runs end as told, one after the other; the last one is stopped by its user."""

    def __init__(self, *ends: Exception) -> None:
        self.ends = list(ends)
        self.runs = 0

    async def run(self) -> None:
        self.runs += 1
        if self.ends:
            raise self.ends.pop(0)


async def test_a_manager_that_was_stopped_for_longer_than_its_lease_is_started_again(tmp_path: Path) -> None:
    lost = LeadershipLost("lease kube-system/manager could not be renewed within 25s")
    manager = Played(lost, ExceptionGroup("parts", [lost]))
    await command._manage(lambda: manager, tmp_path)  # type: ignore[arg-type, return-value]
    assert manager.runs == 3


async def test_a_full_disk_ends_it_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=0))
    manager = Played(LeadershipLost("lease kube-system/manager could not be renewed within 25s"))
    with pytest.raises(errors.Terminal, match=f"no space left for {tmp_path}"):
        await command._manage(lambda: manager, tmp_path)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("error", [errors.Terminal("refused"), ExceptionGroup("parts", [ValueError("a bug")])])
async def test_a_manager_that_fails_for_another_reason_ends_it(error: Exception, tmp_path: Path) -> None:
    manager = Played(error)
    with pytest.raises(type(error)):
        await command._manage(lambda: manager, tmp_path)  # type: ignore[arg-type, return-value]
    assert manager.runs == 1
