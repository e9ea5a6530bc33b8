"""Accounts of this machine, as its name service knows them: files, LDAP, SSSD.

In: a name. Out: an `Account`, or None where the name service says that there is none. Who is looked up in tests is
passed in as an `Accounts` of their own.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Protocol

import msgspec

from bedplate.core import errors

__all__ = ["PKI", "Account", "Accounts", "SystemAccounts"]

PKI = Path("/etc/kubernetes/pki")
"""Where kubeadm keeps a cluster's authority on this machine."""


class Account(msgspec.Struct, frozen=True):
    """A person's account: `gids` are all their groups, the primary one first."""

    name: str
    uid: int
    gids: tuple[int, ...]
    home: Path

    @property
    def gid(self) -> int:
        """The primary group."""
        return self.gids[0]


class Accounts(Protocol):
    """Where accounts are looked up."""

    def find(self, name: str) -> Account | None:
        """The account of exactly this name."""
        ...


class SystemAccounts:
    """The name service of this machine."""

    def find(self, name: str) -> Account | None:
        try:
            entry = pwd.getpwnam(name)
        except (KeyError, ValueError):  # no such name; a name with a NUL byte
            return None
        except OSError as err:
            raise errors.Unavailable(
                f"the account {name!r} could not be looked up: {err.strerror}",
                hint="check the name service of this machine (getent passwd)",
            ) from err
        others = sorted(set(os.getgrouplist(entry.pw_name, entry.pw_gid)) - {entry.pw_gid})
        # A directory may find John for john. The certificate is for the name that was typed, so both must agree.
        if entry.pw_name != name:
            return None
        return Account(name, entry.pw_uid, (entry.pw_gid, *others), Path(entry.pw_dir))
