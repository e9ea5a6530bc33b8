"""Reads pages as a browser without JavaScript does: text, links, tables, forms with their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser

import aiohttp
from aiohttp.test_utils import TestClient

_VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "rect", "polyline", "path", "option"}


@dataclass
class Form:
    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)
    boxes: set[str] = field(default_factory=set)
    labels: dict[str, str] = field(default_factory=dict)
    unlabelled: list[str] = field(default_factory=list)


class Page(HTMLParser):
    """One page, parsed. `elements` are all start tags with their attributes."""

    def __init__(self, text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(convert_charrefs=True)
        self.html, self.status, self.headers = text, status, headers or {}
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.forms: list[Form] = []
        self.tables: list[list[list[str]]] = []
        self.words: list[str] = []
        self._stack: list[str] = []
        self._cell: list[str] | None = None
        self._area = self._select = ""
        self._labels: dict[str, str] = {}
        self._label_for: str | None = None
        self._inputs: list[tuple[Form, str, dict[str, str], bool]] = []
        self.feed(text)
        for form, name, attributes, inside in self._inputs:
            if not inside and attributes.get("id") not in self._labels and "aria-label" not in attributes:
                form.unlabelled.append(name)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def form(self, action: str) -> Form:
        found = [form for form in self.forms if form.action == action]
        assert found, f"no form for {action}; there are {[form.action for form in self.forms]}"
        return found[0]

    def links(self) -> list[str]:
        return [attributes.get("href", "") for name, attributes in self.elements if name == "a"]

    def rows(self, header: str) -> list[dict[str, str]]:
        """The rows of the table with that column, by column."""
        for table in self.tables:
            if table and header in table[0]:
                return [dict(zip(table[0], row, strict=True)) for row in table[1:]]
        raise AssertionError(f"no table has {header}; there are {[table[:1] for table in self.tables]}")

    def every(self, header: str) -> list[dict[str, str]]:
        """The rows of all tables with that column."""
        tables = [table for table in self.tables if table and header in table[0]]
        return [dict(zip(table[0], row, strict=True)) for table in tables for row in table[1:]]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.elements.append((tag, attributes))
        if tag not in _VOID:
            self._stack.append(tag)
        name = attributes.get("name", "")
        if tag == "form":
            self.forms.append(Form(attributes.get("action", ""), attributes.get("method", "get")))
        elif tag == "label":
            self._label_for = attributes.get("for", "")
            self._labels[self._label_for] = ""
        elif tag in ("input", "select", "textarea") and name and self._in("form"):
            form = self.forms[-1]
            if attributes.get("type") == "checkbox":
                form.boxes.add(name)
                if "checked" in attributes:
                    form.fields[name] = "\n".join(
                        [*([form.fields[name]] if name in form.fields else []), attributes.get("value", "")]
                    )
            elif tag == "input":
                form.fields[name] = attributes.get("value", "")
            else:
                form.fields[name] = ""
            if attributes.get("type") != "hidden":
                self._inputs.append((form, name, attributes, self._in("label")))
            self._area = name if tag == "textarea" else ""
            self._select = name if tag == "select" else self._select
        elif tag == "option" and self._select and ("selected" in attributes or not self.forms[-1].fields[self._select]):
            if "selected" in attributes or self._first_option():
                self.forms[-1].fields[self._select] = attributes.get("value", "")
        elif tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self._cell = []

    def _first_option(self) -> bool:
        """Whether nothing was chosen yet: a browser then takes the first option."""
        count = 0
        for name, _ in reversed(self.elements):
            if name == "select":
                break
            count += name == "option"
        return count == 1

    def _in(self, tag: str) -> bool:
        return tag in self._stack

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            self.tables[-1][-1].append(" ".join("".join(self._cell).split()))
            self._cell = None
        if tag == "textarea":
            self._area = ""
        if tag == "select":
            self._select = ""
        if tag == "label":
            self._label_for = None
        while tag in self._stack and self._stack.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._area:
            held = self.forms[-1].fields
            # A browser drops the line feed right after the tag.
            held[self._area] = held[self._area] + data if held[self._area] else data.removeprefix("\n")
        if self._label_for is not None:
            self._labels[self._label_for] = self._labels.get(self._label_for, "") + data
        if self._cell is not None:
            self._cell.append(data)
        if not self._in("script") and not self._in("style"):
            self.words.append(data)


class Reader:
    """Somebody with a browser without JavaScript."""

    def __init__(self, client: TestClient[aiohttp.web.Request, aiohttp.web.Application]) -> None:
        self.client = client
        self.page = Page("")

    async def get(self, address: str) -> Page:
        async with self.client.get(address) as response:
            self.page = Page(await response.text(), response.status, response.headers)
        return self.page

    async def post(self, address: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None) -> Page:
        async with self.client.post(address, data=dict(fields), headers=headers) as response:
            self.page = Page(await response.text(), response.status, response.headers)
        return self.page

    async def submit(self, action: str, **changed: str) -> Page:
        """Send a form of the present page; `f__max_pods` stands for the field `f.max_pods`."""
        form = self.page.form(action)
        fields = form.fields | {name.replace("__", "."): text for name, text in changed.items()}
        unknown = set(fields) - set(form.fields) - form.boxes - {"then", "certificate", "which"}
        assert not unknown, f"the form has no {unknown}"
        return await self.post(action, fields)

    async def sign_in(self, token: str, onward: str = "/") -> Page:
        await self.get(f"/login?next={onward}")
        return await self.submit("/login", token=token)
