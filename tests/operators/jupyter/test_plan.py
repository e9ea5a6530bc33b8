"""Why a kernel is over, in words that help."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bedplate.operators.jupyter import plan
from bedplate.operators.jupyter.plan import PodView


def pod(**ends: dict[str, Any] | None) -> PodView:
    statuses = [{"name": name, "state": {"terminated": end} if end else {"running": {}}} for name, end in ends.items()]
    return msgspec.convert({"metadata": {"name": "p"}, "status": {"containerStatuses": statuses}}, PodView)


NEVER_RAN = {"exitCode": 128, "reason": "StartError", "message": 'exec: "python3": not found\n'}


@pytest.mark.parametrize(
    ("view", "told"),
    [
        (pod(kernel=None, cmjksidecar=None), ""),
        (pod(kernel={"exitCode": 3}, cmjksidecar=None), "container kernel stopped with exit code 3"),
        (pod(kernel=None, cmjksidecar={"exitCode": 1}), "container cmjksidecar stopped with exit code 1"),
        (
            pod(kernel=NEVER_RAN, cmjksidecar=None),
            'container kernel stopped with exit code 128: StartError: exec: "python3": not found',
        ),
    ],
)
def test_the_end_of_a_kernel_is_told_with_the_runtimes_words(view: PodView, told: str) -> None:
    assert plan.ended(view) == told
