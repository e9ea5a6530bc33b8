"""The revisioned key/value store: one interface, two backends (SQLite in process, etcd v3), one conformance suite."""
