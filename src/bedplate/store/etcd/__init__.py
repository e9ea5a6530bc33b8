"""The backend of the store on a real etcd v3."""

from bedplate.store.etcd.members import EtcdOptions
from bedplate.store.etcd.store import EtcdStore

__all__ = ["EtcdOptions", "EtcdStore"]
