"""The command line of cm-kubernetes-setup.

In: words. Out: the exit code of the action they name: 0 success, 1 a run that did not complete or an action that
failed, 2 wrong usage or wrong answers. Errors are one message; a traceback is shown with --verbose alone.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

import bedplate
from bedplate.core import errors, logging
from bedplate.setup.tool.flags import ACTION_FLAGS, CARE, DEPLOY, DEV_FLAGS, DEV_GROUP, FLAGS, GROUPS, by_name

__all__ = ["PROGRAM", "TITLE", "action_of", "command"]

PROGRAM = "cm-kubernetes-setup"
TITLE = "Kubernetes Setup"

_EXAMPLES = """
Examples:
  cm-kubernetes-setup                                              ask, then save the answers or deploy
  cm-kubernetes-setup -c examples/three-nodes.yaml                 deploy without questions
  cm-kubernetes-setup -c answers.yaml --plan                       show what would be done
  cm-kubernetes-setup --resume                                     continue after an interruption
  cm-kubernetes-setup --undo                                       take back what an interrupted run did
  cm-kubernetes-setup --add-nodes node004,node[010-019]            add workers to the only cluster
  cm-kubernetes-setup --remove-nodes node004                       drain it, reset it, take it out
  cm-kubernetes-setup --add-user alice --role view
  cm-kubernetes-setup --pull --images nginx,busybox --nodes node00[1-3]
  cm-kubernetes-setup --update-addons                              bring the manifests of this release
  cm-kubernetes-setup --upgrade 1.35 --plan                        show which node is upgraded when
  cm-kubernetes-setup --upgrade 1.35 --rehearse                    do it in a lab first
  cm-kubernetes-setup --configure-ingress --trusted-domains example.com,*.apps.example.com
  cm-kubernetes-setup --etcd-snapshot /backup/etcd.db
  cm-kubernetes-setup --etcd-restore /backup/etcd.db --yes-i-really-mean-it
  cm-kubernetes-setup --remove --cluster default --yes-i-really-mean-it
  export KUBECONFIG=$(cm-kubernetes-setup --kubeconfig-of default)

The head is found as cmsh finds it: --data, --url, BEDPLATE_DATA, BEDPLATE_URL, ~/.config/bedplate/cmsh.yaml.
Exit codes: 0 success, 1 a run or an action did not succeed, 2 wrong usage or wrong answers.
"""


_DEV = "bedplate.setup.dev"


class _Command(click.Command):
    """Help in the groups of the documentation; that of --dev only where it is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Before --help ends the program, wherever it is on the command line.
        ctx.meta[_DEV] = "--dev" in args
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"usage: {TITLE} {PROGRAM} [-h] [-c FILE] [options]\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        params = {str(param.name): param for param in self.get_params(ctx)}
        flags = (*FLAGS, *DEV_FLAGS)
        for group in (*GROUPS, *((DEV_GROUP,) if ctx.meta.get(_DEV) else ())):
            names = [flag.attribute for flag in flags if flag.group == group]
            if group == GROUPS[0]:
                names += sorted(set(params) - {flag.attribute for flag in flags})
            rows = [row for name in names if (row := params[name].get_help_record(ctx)) is not None]
            with formatter.section(group):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(_EXAMPLES)


def action_of(values: Mapping[str, Any]) -> str:
    """The action that the flags name. Raises `UsageError` for two of them, and for a flag that is not for it."""
    named = [flag.name for flag in ACTION_FLAGS if values[flag.attribute] not in (None, False, ())]
    if len(named) > 1:
        raise click.UsageError(f"--{named[0]} and --{named[1]} are mutually exclusive")
    action = named[0] if named else DEPLOY
    for flag in (*FLAGS, *DEV_FLAGS):
        is_given = values.get(flag.attribute) not in (None, False, ())
        if is_given and flag in DEV_FLAGS and not values["dev"]:
            raise click.UsageError(f"--{flag.name} is for development; give --dev as well")
        if is_given and not flag.is_action and flag.actions is not None and action not in flag.actions:
            shown = "-c" if flag.name == "config" else f"--{flag.name}"
            with_what = "a deployment" if action == DEPLOY else f"--{action}"
            fits = ", ".join("a deployment" if name == DEPLOY else f"--{name}" for name in flag.actions)
            raise click.UsageError(f"{shown} does not apply to {with_what}; it is for {fits}")
    if values["json"] and values["output_remote_execution_runner"]:
        raise click.UsageError("--json and --output-remote-execution-runner are mutually exclusive")
    if values["rehearse_workers"] is not None and not values["rehearse"]:
        raise click.UsageError("--rehearse-workers is about the lab of --rehearse; give both")
    return action


def _print_completion(ctx: click.Context, param: click.Parameter, shell: str | None) -> None:
    if shell is None or ctx.resilient_parsing:
        return
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three shells of the choice"
    click.echo(kind(ctx.command, {}, PROGRAM, "_CM_KUBERNETES_SETUP_COMPLETE").source())
    ctx.exit()


def _run(**values: Any) -> None:
    action = action_of(values)
    logging.configure(logging.LogOptions(verbosity=2 * values["verbose"], is_quiet=not values["verbose"]))
    try:
        code = _performer(action)(action, values)
    except errors.BedplateError as err:
        if values["verbose"]:
            import traceback

            traceback.print_exc()
        click.echo(f"{PROGRAM}: {errors.describe(err)}", err=True)
        code = 2 if isinstance(err, errors.Invalid) else 1
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        import os

        # What is still buffered must not fail once more while the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    sys.exit(code)


def _performer(action: str) -> Callable[[str, Mapping[str, Any]], int]:
    """What carries out an action; imported when it is called, so that --help is quick."""
    if action == "list-versions":
        from bedplate.setup.tool import listings

        return lambda action, values: listings.versions(values)
    if action == "list-operators-versions":
        from bedplate.setup.tool import listings

        return lambda action, values: listings.operators_versions(values)
    if action == "list-operators":
        from bedplate.setup.tool import listings

        return lambda action, values: asyncio.run(listings.operators(values))
    if action == "pull":
        from bedplate.setup.tool import pulls

        return lambda action, values: asyncio.run(pulls.perform(values))
    if action == "update-addons":
        from bedplate.setup.tool import updates

        return lambda action, values: asyncio.run(updates.perform(values))
    if action in (by_name()["cluster-kubeconfig"].actions or ()):
        from bedplate.setup.tool import people

        return people.perform
    if action in CARE:
        from bedplate.setup.tool import caretaking

        return lambda action, values: asyncio.run(caretaking.perform(action, values))
    return _operate


def _operate(action: str, values: Mapping[str, Any]) -> int:
    from bedplate.setup.tool import operations

    if values["rehearse"]:
        from bedplate.setup.tool import rehearsing

        return rehearsing.perform(values)
    try:
        return asyncio.run(operations.perform(action, values))
    except operations.Another as chosen:
        # What has a value on the command line, and was not asked for by the wizard, is asked for by the action.
        own = by_name()[chosen.action]
        flags = {own.attribute: "" if own.is_bare else True, **chosen.flags}
        return _performer(chosen.action)(chosen.action, {**values, **flags})


command = _Command(
    PROGRAM,
    params=[
        *(flag.option() for flag in (*FLAGS, *DEV_FLAGS)),
        click.Option(
            ["--completion"],
            type=click.Choice(["bash", "zsh", "fish"]),
            is_eager=True,
            expose_value=False,
            callback=_print_completion,
            help="Print a completion script for that shell.",
        ),
    ],
    callback=_run,
    help="Turn managed nodes into a Kubernetes cluster, and back. Without options, a wizard asks what to build.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
click.version_option(bedplate.__version__, prog_name=PROGRAM)(command)
