"""The embedded backend of the store: one SQLite file, owned by one process."""

from bedplate.store.sqlite.file import Damaged, InUse
from bedplate.store.sqlite.store import SqliteStore

__all__ = ["Damaged", "InUse", "SqliteStore"]
