"""What `cmjksidecar` was told: flags, and the variables that the operator sets. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from bedplate.core import errors, flags_global
from bedplate.core.flags import Group, flag
from bedplate.core.flags_global import Global
from bedplate.operators.jupyter import names
from bedplate.program import options as program
from bedplate.program.options import Reading

__all__ = ["GROUPS", "Options", "Place", "Serving", "place", "read"]


@dataclass(frozen=True, slots=True)
class Serving:
    """The sidecar's flags."""

    timeout: float = flag(60.0, "Seconds without a ping of the gateway after which the sidecar stops.")
    response_address: str = flag(
        "", "HOST:PORT at which the gateway waits for the connection parameters; empty: they are not sent."
    )
    public_key: str = flag("", "The gateway's RSA key (base64, DER), with which the parameters are encrypted.")
    bind_address: str = flag("", "Address at which the channels are served; empty: all.")


GROUPS = (Group("serving", "Sidecar", Serving), Group("globals", "Logging and information", Global))


@dataclass(frozen=True, slots=True)
class Options(program.Options):
    """What the program was told."""

    GROUPS: ClassVar = GROUPS

    serving: Serving = field(default_factory=Serving)


def read(words: Sequence[str]) -> Reading[Options]:
    """Parse a command line; every problem of syntax and values is reported."""
    return program.read(Options, words, refuse=_refuse, validate=_problems)


def _refuse(word: str) -> str | None:
    return f"takes no arguments, but was given {word!r}"


def _problems(options: Options) -> Iterator[str]:
    chosen = options.serving
    if not 0 < chosen.timeout < 1e9:
        yield f"--timeout: must be more than 0 seconds, is {chosen.timeout:g}"
    if chosen.response_address:
        try:
            host = program.listener(chosen.response_address)
        except ValueError as err:
            yield f"--response-address: {err}"
        else:
            if host is None or host[0] is None or host[1] == 0:
                yield f"--response-address: {chosen.response_address!r} must be HOST:PORT"
            if not chosen.public_key:
                yield "--response-address: needs --public-key, for the parameters contain the kernel's key"
    elif chosen.public_key:
        yield "--public-key: needs --response-address"
    yield from flags_global.problems(options.globals)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the kernel's file is, and where its channels are served."""

    connection_file: str = names.CONNECTION_FILE
    kernel_id: str = ""
    ports: Mapping[str, int] = field(default_factory=lambda: dict(names.CHANNELS))
    comm_port: int = names.COMM_PORT


def place(environ: Mapping[str, str]) -> Place:
    """Read the variables `CMJK_…`; raises `Invalid` with everything that is wrong."""
    problems: list[str] = []

    def port(name: str, default: int) -> int:
        text = environ.get(name) or str(default)
        if text.isascii() and text.isdigit() and 0 <= int(text) <= 65535:
            return int(text)
        problems.append(f"{name}: {text!r} must be a port from 0 to 65535")
        return 0

    ports = {name: port(f"CMJK_{name.upper()}_PORT", number) for name, number in names.CHANNELS.items()}
    comm = port("CMJK_COMM_PORT", names.COMM_PORT)
    chosen = [number for number in (*ports.values(), comm) if number]
    if len(set(chosen)) < len(chosen):
        problems.append("CMJK_…_PORT: every channel must have a port of its own")
    if problems:
        raise errors.Invalid("the sidecar's variables are wrong", problems=problems)
    path = environ.get("CMJK_CONNECTION_FILE") or names.CONNECTION_FILE
    return Place(path, environ.get("CMJK_KERNEL_ID", ""), ports, comm)
