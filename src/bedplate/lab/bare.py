"""A bare node: a machine without anything on it, for agents to make something of.

In: the lab's folder and the node's own. Out: the script that gives the node a root folder of its own, and the first
process of its own process namespace. `/etc`, `/usr` and `/opt` are this machine's with a layer above that takes what
changes; everything else is the node's own, but for the interpreter that its agent runs with, which it can read. What
the lab's packages bring is hidden, so that a program is there only once it was installed. The node's folder keeps all
of it over a power failure; `/run` starts empty.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

import bedplate
from bedplate.lab.packages import paths_of

__all__ = ["AGENT", "INIT", "PACKAGES", "is_init", "script"]

# Seen from inside: what may be installed, and a file that is there once the root folder is whole.
PACKAGES = "/run/bedplate/packages"
_WHOLE = "/run/bedplate/whole"
AGENT = "/usr/local/bin/bedplate-agent"

# It reaps whatever loses its parent, as an init must, and starts the agent again should it end, as a unit would.
INIT = (
    "sh",
    "-c",
    f"while :; do if [ -e {_WHOLE} ] && grep -qs '^urls' /etc/bedplate/agent.toml; then {AGENT} run; fi; sleep 1; done",
)

_SCRIPT = """
set -e
umask 022
own={own}
root=$own/root
mkdir -p "$root"
mount --bind "$root" "$root"
for each in bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$each" ]; then
        [ -L "$root/$each" ] || cp -P "/$each" "$root/$each"
    elif [ -d "/$each" ]; then
        mkdir -p "$root/$each"
        mount --rbind "/$each" "$root/$each"
    fi
done
for each in etc usr opt; do
    mkdir -p "$root/$each" "$own/$each" "$own/$each.work"
    mount -t overlay -o "lowerdir=/$each,upperdir=$own/$each,workdir=$own/$each.work" overlay "$root/$each"
done
for each in var/lib var/log var/cache var/tmp tmp root home run proc sys dev mnt srv; do mkdir -p "$root/$each"; done
chmod 1777 "$root/tmp" "$root/var/tmp"
chmod 700 "$root/root"
[ -L "$root/var/run" ] || ln -s /run "$root/var/run"
for each in {visible}; do
    mkdir -p "$root$each"
    mount --bind "$each" "$root$each"
    mount -o remount,bind,ro "$root$each"
done
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mkdir -p "$root/run/netns" "$root/run/lock" "$root{packages}"
mount --bind {lab}/packages "$root{packages}"
mount -o remount,bind,ro "$root{packages}"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
mount --rbind /dev "$root/dev"
if [ ! -e "$own/made" ]; then
    (cd "$root" && rm -rf etc/bedplate {hidden})
    printf '%s\\n' {agent} > "$root{agent_path}"
    chmod 755 "$root{agent_path}"
    mkdir -p "$root/usr/lib/modules"
    rm -f "$root/etc/hostname" && echo {name} > "$root/etc/hostname"
    touch "$own/made"
fi
cd "$root"
mkdir -p .before
pivot_root . .before
cd /
umount -l /.before
rmdir /.before
mount --make-rshared /
hostname {name}
touch {whole}
"""


def script(name: str, lab: Path, own: Path) -> str:
    """What makes the root folder of a node, run in its fresh namespaces."""
    shim = ["#!/bin/sh", f'exec {shlex.quote(sys.executable)} -m bedplate.apps.agent "$@"']
    hidden = [path.lstrip("/") for path in paths_of(lab / "packages") if os.path.lexists(path)]
    return _SCRIPT.format(
        name=shlex.quote(name),
        lab=shlex.quote(str(lab)),
        own=shlex.quote(str(own)),
        visible=_words(_interpreter()),
        hidden=_words(hidden),
        packages=PACKAGES,
        agent=_words(shim),
        agent_path=AGENT,
        whole=_WHOLE,
    )


def is_init(pid: int) -> bool:
    """Whether a process is the first one of a process namespace of its own."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                numbers = line.split()[1:]
                return len(numbers) > 1 and numbers[-1] == "1"
    except OSError:
        pass
    return False


def _interpreter() -> list[str]:
    """Folders that an agent needs to run from this installation, and that a node would not see otherwise."""
    package = Path(bedplate.__file__).resolve().parent.parent
    needed = [Path(sys.prefix), Path(sys.base_prefix), package, Path(sys.executable).resolve().parent]
    shown = [path for path in needed if path.parts[1] not in ("usr", "opt", "etc", "bin", "sbin", "lib", "lib64")]
    # A folder within one that is shown already needs nothing.
    return [str(path) for path in dict.fromkeys(shown) if not any(other in path.parents for other in shown)]


def _words(words: Iterable[str]) -> str:
    return " ".join(shlex.quote(word) for word in words)
