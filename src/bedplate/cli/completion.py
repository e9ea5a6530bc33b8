"""`bedplate completion`: what a shell needs to complete the command lines of all programs.

In: the name of a shell. Out: a script for it. Programs with commands (`bedplate`, `cmsh`, `cm-kubernetes-setup`, the
agents) are asked by the shell while people type; those with Kubernetes-style flags have their flags in the script.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from bedplate.cli import display

if TYPE_CHECKING:
    from bedplate.core.flags import Flag

__all__ = ["PROGRAMS", "completion"]

ASKED = ("bedplate", "bedplate-agent", "cm-kube-diagnose", "cm-kubernetes-setup", "cmsh", "cloudlycke-lb-agent")
MANAGERS = tuple(f"{cloud}-cloud-controller-manager" for cloud in ("nvidia-bmm", "oxide", "cloudlycke"))
JUPYTER = ("jupyter-kernel-operator", "cmjksidecar")
PROGRAMS = (*ASKED, *MANAGERS, "ipam-controller", "ipam-node", "permissions-manager", *JUPYTER)
SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog=display.examples(
        'eval "$(bedplate completion bash)"                                   in ~/.bashrc',
        'eval "$(bedplate completion zsh)"                                    in ~/.zshrc, after compinit',
        "bedplate completion fish > ~/.config/fish/conf.d/bedplate.fish",
        "bedplate completion zsh --program ipam-node > _ipam-node             a file for fpath",
    )
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.option("--program", type=click.Choice(PROGRAMS), help="Only for this program.  [default: all]")
@click.pass_context
def completion(ctx: click.Context, shell: str, program: str | None) -> None:
    """Print a completion script for SHELL: for bedplate, cmsh, cm-kubernetes-setup, the agents, managers and all other
    programs."""
    for name in PROGRAMS if program is None else (program,):
        click.echo(_asked(ctx, shell, name) if name in ASKED else _listed(shell, name, _flags(name)))


def _asked(ctx: click.Context, shell: str, program: str) -> str:
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three shells of the choice above"
    variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
    return kind(ctx.find_root().command, {}, program, variable).source()


def _flags(program: str) -> Sequence[Flag]:
    from bedplate.core import flags

    if program in MANAGERS:
        from bedplate.cloud.manager import options as manager

        return flags.all_flags(manager.GROUPS)
    if program in JUPYTER:
        from bedplate.operators.jupyter import options as operator
        from bedplate.operators.jupyter.sidecar import options as sidecar

        return flags.all_flags(operator.GROUPS if program == JUPYTER[0] else sidecar.GROUPS)
    if program == "ipam-controller":
        from bedplate.ipam.controller import options as controller

        return flags.all_flags(controller.GROUPS)
    if program == "permissions-manager":
        from bedplate.operators.permissions import options as permissions

        return flags.all_flags(permissions.GROUPS)
    from bedplate.ipam.node import options as node

    return flags.all_flags(node.GROUPS)


def _listed(shell: str, program: str, flags: Sequence[Flag]) -> str:
    """A script with the flags themselves; files are completed after those that take a value."""
    if shell == "bash":
        return f"complete -o default -W '{' '.join(sorted(f'--{flag.name}' for flag in flags))}' {program}"
    if shell == "fish":
        return "\n".join(_for_fish(program, flag) for flag in flags)
    # The name of its file too: compinit loads the function of that name.
    name = f"_{program}"
    arguments = ("  _arguments -S \\", *map(_for_zsh, flags), "    '*:file:_files'")
    lines = (f"#compdef {program}", f"{name}() {{", *arguments, "}")
    # Read from fpath the file is the function; read by eval it declares it.
    ends = (f'if [ "$funcstack[1]" = "{name}" ]; then', f'  {name} "$@"', "else", f"  compdef {name} {program}", "fi")
    return "\n".join((*lines, *ends))


def _for_fish(program: str, flag: Flag) -> str:
    about = _about(flag).replace("\\", "\\\\").replace("'", "\\'")
    return f"complete -c {program} -l {flag.name}{' -r' if _takes_value(flag) else ''} -d '{about}'"


def _for_zsh(flag: Flag) -> str:
    # In the grammar of _arguments a bracket ends the text about a flag.
    about = _about(flag).replace("[", "(").replace("]", ")").replace("'", "'\\''")
    if _takes_value(flag):
        return f"    '--{flag.name}=[{about}]:{flag.kind}:_files' \\"
    return f"    '--{flag.name}[{about}]' \\"


def _takes_value(flag: Flag) -> bool:
    return flag.kind != "bool" and not flag.is_bare


def _about(flag: Flag) -> str:
    return " ".join(flag.help.split()).partition(". ")[0].rstrip(".")
