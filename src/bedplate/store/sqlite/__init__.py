"""The embedded backend of the store: one SQLite file, owned by one process."""

from bedplate.store.sqlite.file import Damaged, InUse
from bedplate.store.sqlite.store import SqliteStore, read_entries

__all__ = ["Damaged", "InUse", "SqliteStore", "read_entries"]
