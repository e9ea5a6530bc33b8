"""The objects in memory: `registry` (kept in step with the store), `bodies` (objects as bytes), `watchers`."""
