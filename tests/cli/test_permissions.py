"""What `bedplate permissions` prints for Kyverno's two releases."""

from __future__ import annotations

import pytest
import yaml
from click.testing import CliRunner

from bedplate.cli import permissions as command
from bedplate.operators.permissions import kyverno


def printed(*words: str) -> object:
    done = CliRunner().invoke(command.permissions, ["kyverno-values", *words])
    assert done.exit_code == 0, done.output
    return yaml.safe_load(done.output)


def test_the_values_of_each_release_are_printed() -> None:
    assert printed("kyverno") == {}
    assert printed("kyverno", "--ha") == kyverno.engine_values(is_ha=True)
    assert printed("kyverno-policies") == kyverno.policy_values(frozenset())
    features = [word for name in command.FEATURES for word in ("--feature", name)]
    assert printed("kyverno-policies", *features) == kyverno.policy_values(frozenset(kyverno.FEATURES))
    assert set(command.FEATURES) == set(kyverno.FEATURES)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["kyverno", "--feature", "prometheus"], "'--feature': is for the release kyverno-policies"),
        (["kyverno-policies", "--ha"], "'--ha': is for the release kyverno"),
        (["kyverno-policies", "--feature", "gpu"], "gpu-operator"),
        (["gatekeeper"], "kyverno-policies"),
    ],
)
def test_what_means_nothing_is_refused(words: list[str], told: str) -> None:
    done = CliRunner().invoke(command.permissions, ["kyverno-values", *words])
    assert done.exit_code == 2
    assert told in done.output
