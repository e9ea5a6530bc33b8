"""HTTPS serving shared by all programs: health, readiness, metrics, behind TLS and delegated authentication."""
