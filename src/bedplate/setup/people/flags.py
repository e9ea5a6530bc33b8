"""What the flags of a request say about a user, read from their text. Pure.

In: a `Request` and the user's account. Out: `Settings`, and every problem of the values at once. A value that was not
given stays None: whether that means a default or "as it is" is decided by `plan.py`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from bedplate.api import permissions
from bedplate.people.settings import MAX_ID, OPERATORS, ROLES, Settings, check_path
from bedplate.setup.people.request import Action, Request

__all__ = ["read"]

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


def read(request: Request) -> tuple[Settings, list[str]]:
    """The settings of a request and every problem of them."""
    problems: list[str] = []
    settings = Settings(
        namespace=_namespace(request.namespace, problems),
        role=_role(request.role, problems),
        uid=_uid(request.runas_uid, problems),
        gids=_gids(request.runas_gids, problems),
        paths=_paths(request.user_paths, problems),
        allow_all_uids=request.allow_all_uids,
        operators=_operators(request.operators, problems),
    )
    needs_user = request.action not in (Action.LIST, Action.BACKUP, Action.RESTORE)
    names = permissions.username_problems(request.user) if needs_user else []
    return settings, [*names, *_flags(request), *problems]


def _flags(request: Request) -> list[str]:
    """Flags that contradict each other or say nothing with this action."""
    problems = []
    is_change = request.action in (Action.ADD, Action.MODIFY)
    if request.add_to_namespace and request.remove_from_namespace:
        problems.append("--add-to-namespace and --remove-from-namespace are mutually exclusive")
    if request.remove_from_namespace and request.action is Action.ADD:
        problems.append("--remove-from-namespace is for --modify-user")
    for flag, is_given in (
        ("--add-to-namespace", request.add_to_namespace),
        ("--remove-from-namespace", request.remove_from_namespace),
    ):
        if is_given and not request.namespace:
            problems.append(f"{flag} needs --namespace")
        if is_given and not is_change:
            problems.append(f"{flag} is for --add-user and --modify-user")
    given = [flag for flag, value in _given(request) if value is not None]
    if given and not is_change:
        problems.append(f"{', '.join(given)}: only for --add-user and --modify-user")
    if given and request.remove_from_namespace:
        problems.append(f"{', '.join(given)}: nothing can be set together with --remove-from-namespace")
    if request.days is not None and not 1 <= request.days <= 3650:
        problems.append(f"--certificate-days {request.days}: must be between 1 and 3650")
    if (request.ca_certificate is None) != (request.ca_key is None):
        problems.append("--ca-cert and --ca-key must be given together")
    return problems


def _given(request: Request) -> Sequence[tuple[str, object]]:
    return (
        ("--role", request.role),
        ("--runas-uid", request.runas_uid),
        ("--runas-gids", request.runas_gids),
        ("--user-paths", request.user_paths),
        ("--allow-all-uids", request.allow_all_uids),
        ("--operators", request.operators),
    )


def _words(text: str) -> list[str]:
    """The values of a comma-separated list, each once, in the order given."""
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _namespace(text: str | None, problems: list[str]) -> str | None:
    if text is None:
        return None
    if not _LABEL.fullmatch(text) or len(text) > 63:
        problems.append(
            f"--namespace {text!r}: must be lower-case letters, digits and '-', begin and end with a letter or digit,"
            " and have at most 63 characters"
        )
    return text


def _role(text: str | None, problems: list[str]) -> str | None:
    if text is not None and text not in ROLES:
        problems.append(f"--role {text!r}: must be one of {', '.join(ROLES)}")
    return text


def _number(flag: str, text: str, problems: list[str]) -> int | None:
    # int() would accept "1_000", " 7" and digits of other scripts.
    if re.fullmatch(r"[0-9]{1,10}", text) and int(text) <= MAX_ID:
        return int(text)
    problems.append(f"{flag} {text!r}: must be an integer between 0 and {MAX_ID}")
    return None


def _uid(text: str | None, problems: list[str]) -> int | None:
    return None if text is None else _number("--runas-uid", text, problems)


def _gids(text: str | None, problems: list[str]) -> tuple[int, ...] | None:
    if text is None:
        return None
    numbers = [_number("--runas-gids", word, problems) for word in _words(text)]
    if not numbers:
        problems.append("--runas-gids: must name at least one group by its number")
    return tuple(number for number in numbers if number is not None)


def _paths(text: str | None, problems: list[str]) -> tuple[str, ...] | None:
    if text is None:
        return None
    paths = []
    for word in _words(text):
        problems += check_path(word, "--user-paths")
        paths.append(posixpath.normpath(word))
    return tuple(dict.fromkeys(paths))


def _operators(text: str | None, problems: list[str]) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = []
    for word in _words(text):
        if word in OPERATORS:
            names.append(OPERATORS[word])
        else:
            problems.append(f"--operators {word!r}: must be of {', '.join(dict.fromkeys(OPERATORS.values()))}")
    return tuple(dict.fromkeys(names))
