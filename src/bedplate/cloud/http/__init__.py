"""The HTTP client that providers share: token, limits, retries, breaker, errors; see `client`."""
