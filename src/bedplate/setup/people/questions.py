"""The interactive form of `--add-user`: eight questions in a fixed order.

In: the request as far as flags gave it, answers typed one after the other. Out: the whole request. A value from a flag
is the proposal of its question, Enter takes the proposal. An answer is checked when all are given, with the rest of the
request, so that nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from bedplate.core import errors
from bedplate.people.accounts import Accounts
from bedplate.people.grants import default_namespace
from bedplate.people.settings import ROLES
from bedplate.setup.people.request import Request

__all__ = ["Ask", "ask_all"]

Ask = Callable[[str], str]
"""Shows a question and returns what was typed, without its end of line. Raises `EOFError` at the end of the input."""

_ROLES = (
    "Role (cluster-admin = cluster-wide administrator, admin = administrator, edit = regular user,"
    " view = read-only user)"
)


def ask_all(request: Request, ask: Ask, accounts: Accounts) -> Request:
    """Ask for the cluster, user name, namespace, role, any user, paths, UID and GIDs, operators."""
    try:
        names = [cluster.name for cluster in request.clusters]
        cluster = _asked(ask, _choices("Cluster", names), request.cluster or (names[0] if len(names) == 1 else ""))
        user = _asked(ask, "User name", request.user)
        account = accounts.find(user) if user else None
        proposal = request.namespace or (default_namespace(user) if user else "")
        namespace = _asked(ask, "Namespace", proposal)
        role = _asked(ask, _ROLES, request.role or ROLES[0])
        any_user = _yes(ask, "May run pods as any user, root included", bool(request.allow_all_uids))
        home = str(account.home) if account is not None else ""
        paths = _asked(ask, "Host paths that may be mounted, comma-separated", request.user_paths or home)
        own = f"{account.uid}:{','.join(map(str, account.gids))}" if account is not None else ""
        given = f"{request.runas_uid}:{request.runas_gids or ''}" if request.runas_uid else own
        uid, _, gids = _asked(ask, "UID and GIDs as UID:GID,GID", given).partition(":")
        operators = _asked(ask, "Operators, comma-separated", request.operators or "")
    except EOFError as err:
        raise errors.Invalid("the input ended before all questions were answered; nothing was changed") from err
    return msgspec.structs.replace(
        request,
        cluster=cluster,
        user=user,
        namespace=namespace or None,
        role=role or None,
        allow_all_uids=any_user,
        user_paths=paths or None,
        runas_uid=uid.strip() or None,
        runas_gids=gids.strip() or None,
        operators=operators,
        is_interactive=False,
    )


def _choices(title: str, names: list[str]) -> str:
    named = [name for name in names if name]
    return f"{title} ({', '.join(named)})" if named else title


def _asked(ask: Ask, question: str, proposal: str) -> str:
    return ask(f"{question} [{proposal}]: " if proposal else f"{question}: ").strip() or proposal


def _yes(ask: Ask, question: str, proposal: bool) -> bool:
    while True:
        answer = ask(f"{question} [{'Y/n' if proposal else 'y/N'}]: ").strip().lower()
        if not answer:
            return proposal
        if answer in ("y", "yes", "n", "no"):
            return answer.startswith("y")
