"""Settings of the property tests."""

from __future__ import annotations

