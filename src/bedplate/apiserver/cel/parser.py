"""Tokens to tree: a Pratt parser that expands the macros on the way.

In: source text. Out: an `ast.Node`, or what is wrong: all the lexer found, and the parser's first fault.
"""

from __future__ import annotations

from typing import Any

from bedplate.apiserver.cel import ast
from bedplate.apiserver.cel.lexer import RESERVED, Fault, SyntaxFault, Token, tokenize

__all__ = ["parse"]

_BINARY = {
    "||": 1,
    "&&": 2,
    "==": 3,
    "!=": 3,
    "<": 3,
    "<=": 3,
    ">": 3,
    ">=": 3,
    "in": 3,
    "+": 4,
    "-": 4,
    "*": 5,
    "/": 5,
    "%": 5,
}
_NAMES = {"in": "@in"}
_STARTS = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
_OPENING = frozenset("[{(.-!")
_FOLLOWING = frozenset((*_BINARY, ")", "]", "}", ",", "?", ":", ".", "["))
_MAX_DEPTH = 250
_MIN_INT, _MAX_INT, _MAX_UINT = -(2**63), 2**63 - 1, 2**64 - 1


def parse(source: str) -> tuple[ast.Node | None, list[Fault]]:
    """The tree, or None and what is wrong with the source."""
    tokens, faults = tokenize(source)
    try:
        node = _Parser(tokens).whole()
    except SyntaxFault as error:
        return None, sorted([*faults, error.fault])
    return (None, faults) if faults else (node, [])


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    @property
    def _after(self) -> Token:
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _is(self, *texts: str) -> bool:
        token = self._next
        return token.text in texts and token.kind in ("op", "word")

    def _accept(self, text: str) -> Token | None:
        return self._take() if self._is(text) else None

    def _expect(self, text: str) -> Token:
        if self._is(text):
            return self._take()
        if self._after.text == text:
            raise self._fault(f"extraneous input '{self._next.text}' expecting '{text}'")
        if self._next.kind == "end" or self._next.text in _FOLLOWING:
            raise self._fault(f"missing '{text}' at '{self._next.text}'")
        raise self._fault(f"mismatched input '{self._next.text}' expecting '{text}'")

    def _close(self, text: str) -> None:
        """The end of a list of things."""
        if not self._is(text):
            word = "extraneous" if self._after.text == text else "mismatched"
            raise self._fault(f"{word} input '{self._next.text}' expecting {{'{text}', ','}}")
        self._take()

    def _fault(self, message: str) -> SyntaxFault:
        return SyntaxFault(f"Syntax error: {message}", self._next.line, self._next.column)

    def whole(self) -> ast.Node:
        node = self._expression()
        if self._next.kind != "end":
            is_last = self._tokens[self._at + 1].kind == "end"
            word = "extraneous" if is_last else "mismatched"
            raise self._fault(f"{word} input '{self._next.text}' expecting <EOF>")
        return node

    def _expression(self) -> ast.Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise SyntaxFault(f"expression recursion limit exceeded: {_MAX_DEPTH}", 0, 0)
        node = self._binary(1)
        mark = self._accept("?")
        if mark is not None:
            left = self._binary(1)
            self._expect(":")
            right = self._expression()
            node = ast.Call(mark.line, mark.column, "_?_:_", None, [node, left, right])
        self._depth -= 1
        return node

    def _binary(self, level: int) -> ast.Node:
        left = self._unary()
        while True:
            token = self._next
            strength = _BINARY.get(token.text, 0) if token.kind in ("op", "word") else 0
            if strength < level or not strength:
                return left
            self._take()
            right = self._binary(strength + 1)
            name = _NAMES.get(token.text, f"_{token.text}_")
            left = ast.Call(token.line, token.column, name, None, [left, right])

    def _unary(self) -> ast.Node:
        mark = self._next
        if mark.kind == "op" and mark.text in "!-":
            count = 0
            while self._is(mark.text):
                self._take()
                count += 1
            number = self._next
            if mark.text == "-" and number.kind in ("int", "double") and count % 2:
                return self._member(negative=mark)
            node = self._member()
            name = "!_" if mark.text == "!" else "-_"
            return ast.Call(mark.line, mark.column, name, None, [node]) if count % 2 else node
        return self._member()

    def _member(self, negative: Token | None = None) -> ast.Node:
        node = self._primary(negative)
        while True:
            mark = self._next
            if self._accept("."):
                node = self._after_dot(node, mark)
            elif self._accept("["):
                optional = self._accept("?") is not None
                key = self._expression()
                self._expect("]")
                node = ast.Index(mark.line, mark.column, node, key, optional)
            else:
                return node

    def _after_dot(self, node: ast.Node, mark: Token) -> ast.Node:
        optional = self._accept("?") is not None
        name = self._next
        if name.kind != "ident":
            if name.kind == "word" and name.text != "in":
                raise self._fault(f"mismatched input '{name.text}' expecting IDENTIFIER")
            raise self._fault(f"no viable alternative at input '.{name.text}'")
        self._take()
        bracket = self._accept("(") if not optional else None
        if bracket is None:
            return ast.Select(mark.line, mark.column, node, name.text, optional)
        args = self._arguments(")")
        return _receiver_macro(node, name.text, args, bracket) or ast.Call(
            bracket.line, bracket.column, name.text, node, args
        )

    def _arguments(self, end: str) -> list[ast.Node]:
        arguments: list[ast.Node] = []
        while not self._is(end):
            arguments.append(self._expression())
            if not self._accept(","):
                break
        self._expect(end)
        return arguments

    def _primary(self, negative: Token | None) -> ast.Node:
        token = self._take()
        place = negative or token
        if token.kind in ("int", "uint", "double"):
            return _number(token, place, -1 if negative else 1)
        if token.kind in ("string", "bytes"):
            return ast.Literal(token.line, token.column, token.kind, token.value)
        if token.kind == "word" and token.text != "in":
            value = {"true": True, "false": False, "null": None}[token.text]
            kind = "null" if token.text == "null" else "bool"
            return ast.Literal(token.line, token.column, kind, value)
        if token.kind == "ident":
            return self._identifier(token)
        if token.text == "." and self._next.kind == "ident":
            return self._identifier(self._take())
        if token.text == "(":
            node = self._expression()
            self._expect(")")
            return node
        if token.text == "[":
            return self._list(token)
        if token.text == "{":
            return self._map(token)
        self._at -= 1
        # Where one token too many stands before something that can begin an expression, ANTLR says so.
        is_extra = self._after.kind not in ("op", "end") or self._after.text in _OPENING
        raise self._fault(f"{'extraneous' if is_extra else 'mismatched'} input '{token.text}' expecting {_STARTS}")

    def _identifier(self, token: Token) -> ast.Node:
        bracket = self._accept("(")
        if bracket is None:
            if token.text in RESERVED:
                raise SyntaxFault(f"reserved identifier: {token.text}", token.line, token.column)
            return ast.Ident(token.line, token.column, token.text)
        args = self._arguments(")")
        if token.text == "has" and len(args) == 1:
            if not isinstance(args[0], ast.Select) or args[0].optional:
                raise SyntaxFault("invalid argument to has() macro", args[0].line, args[0].column)
            return ast.Has(bracket.line, bracket.column, args[0].operand, args[0].name)
        return ast.Call(bracket.line, bracket.column, token.text, None, args)

    def _list(self, token: Token) -> ast.Node:
        items: list[ast.Node] = []
        optional: list[bool] = []
        while not self._is("]"):
            optional.append(self._accept("?") is not None)
            items.append(self._expression())
            if not self._accept(","):
                break
        self._close("]")
        return ast.ListNode(token.line, token.column, items, optional)

    def _map(self, token: Token) -> ast.Node:
        entries: list[tuple[ast.Node, ast.Node, bool]] = []
        while not self._is("}"):
            optional = self._accept("?") is not None
            key = self._expression()
            self._expect(":")
            entries.append((key, self._expression(), optional))
            if not self._accept(","):
                break
        self._close("}")
        return ast.MapNode(token.line, token.column, entries)


def _number(token: Token, place: Token, sign: int) -> ast.Node:
    value: Any = token.value * sign
    if token.kind == "int" and not _MIN_INT <= value <= _MAX_INT:
        raise SyntaxFault("invalid int literal", place.line, place.column)
    if token.kind == "uint" and value > _MAX_UINT:
        raise SyntaxFault("invalid uint literal", place.line, place.column)
    return ast.Literal(place.line, place.column, token.kind, value)


_ONE_VARIABLE = {"all": (2,), "exists": (2,), "exists_one": (2,), "map": (2, 3), "filter": (2,)}
_TWO_VARIABLES = {
    "all": (3,),
    "exists": (3,),
    "exists_one": (3,),
    "existsOne": (3,),
    "transformList": (3, 4),
    "transformMap": (3, 4),
    "transformMapEntry": (3, 4),
}
_OPTIONAL = {"optMap": (2,), "optFlatMap": (2,), "sortBy": (2,)}


def _receiver_macro(target: ast.Node, name: str, args: list[ast.Node], place: Token) -> ast.Node | None:
    count = len(args)
    variables: tuple[str, ...]
    if count in _ONE_VARIABLE.get(name, ()) or count in _OPTIONAL.get(name, ()):
        variables = (_variable(args[0], name),)
    elif count in _TWO_VARIABLES.get(name, ()):
        variables = (_variable(args[0], name), _variable(args[1], name))
        if variables[0] == variables[1]:
            raise SyntaxFault(f"duplicate variable name: {variables[1]}", args[1].line, args[1].column)
    else:
        return None
    rest = args[len(variables) :]
    macro = "exists_one" if name == "existsOne" else name
    if macro in ("all", "exists", "exists_one", "filter"):
        return ast.Comprehension(place.line, place.column, macro, target, variables, rest[0], None)
    condition = rest[0] if len(rest) == 2 else None
    return ast.Comprehension(place.line, place.column, macro, target, variables, condition, rest[-1])


def _variable(node: ast.Node, macro: str) -> str:
    if isinstance(node, ast.Ident):
        return node.name
    text = "argument must be a simple name"
    if macro in ("map", "filter"):
        text = "argument is not an identifier"
    elif macro in ("optMap", "optFlatMap"):
        text = f"{macro}() variable name must be a simple identifier"
    raise SyntaxFault(text, node.line, node.column)
