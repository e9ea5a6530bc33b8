"""Where a webhook is reached."""

from __future__ import annotations

import pytest

from bedplate.apiserver.webhooks import calls


def test_endpoints_are_found_through_service_and_endpoints() -> None:
    objects = {
        "services": {"spec": {"ports": [{"name": "web", "port": 443}]}},
        "endpoints": {"subsets": [{"addresses": [{"ip": "10.0.0.9"}], "ports": [{"name": "web", "port": 9443}]}]},
    }
    resolve = calls.endpoint_resolver(lambda group, resource, namespace, name: objects.get(resource))
    assert resolve("ns", "hook", 443) == ("10.0.0.9", 9443)
    with pytest.raises(LookupError, match='no service port 80 found for service "hook"'):
        resolve("ns", "hook", 80)
    objects["endpoints"] = {}
    with pytest.raises(LookupError, match='no endpoints available for service "hook"'):
        resolve("ns", "hook", 443)
