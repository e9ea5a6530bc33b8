"""Webhook configurations: what is filled in, and what the real server says of bad ones."""

from __future__ import annotations

import pytest
from tests.apiserver import recorded

from bedplate.apiserver.webhooks import configurations


def test_a_configuration_is_filled_in() -> None:
    found = {
        "kind": "MutatingWebhookConfiguration",
        "webhooks": [{"rules": [{}], "clientConfig": {"service": {"name": "x"}}}],
    }
    configurations.default(found)
    assert found["webhooks"] == [
        {
            "rules": [{"scope": "*"}],
            "clientConfig": {"service": {"name": "x", "port": 443}},
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "timeoutSeconds": 10,
            "reinvocationPolicy": "Never",
        }
    ]


QUESTIONS = {question["name"]: question for question in recorded.questions("webhooks")}


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_a_configuration_is_judged_as_by_the_real_server(name: str) -> None:
    found = recorded.webhook_configuration(QUESTIONS[name])
    configurations.default(found)
    assert recorded.normal(configurations.validate(found)) == recorded.answers("webhooks")[name]
