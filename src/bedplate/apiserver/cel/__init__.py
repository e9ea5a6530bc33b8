"""The Common Expression Language as the Kubernetes API server runs it: parsed, type-checked, compiled to closures.

In: source text and the types of its variables. Out: an `Expression` to run, or `CompileError` with the server's text.
The functions are those that Kubernetes 1.35 offers to new expressions. `crds.validations` applies it to
`x-kubernetes-validations`. Why it is an implementation of our own: docs/designs/0003-cel.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from bedplate.apiserver.cel import checker, cost, evaluator, kubernetes, operators, parser, strings
from bedplate.apiserver.cel.lexer import Fault
from bedplate.apiserver.cel.signatures import Registry
from bedplate.apiserver.cel.types import Type
from bedplate.apiserver.cel.values import TOO_DEEP

__all__ = ["CompileError", "Expression", "compile_expression", "functions"]


class CompileError(ValueError):
    """The expression is refused; the text lists every fault with its place."""


@dataclass(frozen=True, slots=True)
class Expression:
    checked: checker.Checked
    run: evaluator.Program
    """takes the variables in the order they were declared."""
    cost: int
    """what one run costs at most, as estimated."""

    @property
    def result(self) -> Type:
        return self.checked.result

    @property
    def used(self) -> set[str]:
        return self.checked.used


@cache
def functions() -> Registry:
    registry = Registry()
    for library in (operators, strings, kubernetes):
        library.install(registry)
    return registry


def compile_expression(source: str, variables: Mapping[str, Type]) -> Expression:
    """The expression, or `CompileError`; also for one that is nested more deeply than this server can follow."""
    try:
        return _compile(source, variables)
    except RecursionError:
        raise CompileError(checker.render([Fault(1, 0, TOO_DEEP)], source)) from None


def _compile(source: str, variables: Mapping[str, Type]) -> Expression:
    root, faults = parser.parse(source)
    if root is None:
        raise CompileError(checker.render(faults, source))
    checked = checker.check(root, variables, functions().functions)
    if checked.faults:
        raise CompileError(checker.render(checked.faults, source))
    return Expression(checked, evaluator.compile_program(checked, list(variables)), cost.estimate(checked, variables))
