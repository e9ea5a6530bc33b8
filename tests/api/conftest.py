"""Settings of the property tests."""

from __future__ import annotations

import hypothesis

# A busy machine is no failure: no deadline per example.
hypothesis.settings.register_profile("patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("patient")
