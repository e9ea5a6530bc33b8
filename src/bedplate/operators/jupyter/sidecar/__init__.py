"""`cmjksidecar`: connects a kernel in a pod to its gateway outside of it."""
