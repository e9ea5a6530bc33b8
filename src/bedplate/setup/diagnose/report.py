"""The report: sections of lines, and findings. Pure, but for `archive`, which writes a file.

In: what was read, and why something could not be. Out: text, JSON or a tar.gz with a file for each section. Secrets are
stars in all of them: nothing goes into a report but through `Report.add`.
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from bedplate.api.masking import masked
from bedplate.core import errors
from bedplate.setup.targets import check_target

__all__ = ["Report", "Section"]


@dataclass(frozen=True, slots=True)
class Section:
    """What was read of one thing; `why` says why it could not be."""

    title: str
    lines: Sequence[str]
    why: str = ""


@dataclass(slots=True)
class Report:
    """What was found out about a cluster."""

    cluster: str
    taken: str
    sections: list[Section] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    """What is wrong, one sentence each."""

    def add(self, title: str, lines: Iterable[str]) -> None:
        """Add what was read."""
        self.sections.append(Section(title, masked("\n".join(lines)).split("\n")))

    def miss(self, title: str, why: str) -> None:
        """Add that something could not be read."""
        self.sections.append(Section(title, (), masked(why)))

    def find(self, text: str) -> None:
        """Add what is wrong."""
        self.findings.append(masked(text))

    @property
    def missing(self) -> list[str]:
        return [f"{section.title}: {section.why}" for section in self.sections if section.why]

    @property
    def exit_code(self) -> int:
        """0: nothing is wrong; 1: something is; 3: not all could be read, and what could be is well."""
        return 1 if self.findings else 3 if self.missing else 0

    def text(self) -> str:
        """For people: what is wrong first."""
        lines = [f"Kubernetes cluster {self.cluster}, {self.taken}", ""]
        lines += [f"FINDING  {text}" for text in self.findings] or ["No findings."]
        lines += [f"NOT READ {text}" for text in self.missing]
        for section in self.sections:
            if not section.why:
                lines += ["", f"== {section.title}", *section.lines]
        return "\n".join(lines) + "\n"

    def json(self) -> str:
        """For programs."""
        sections = {section.title: list(section.lines) for section in self.sections if not section.why}
        missing = {section.title: section.why for section in self.sections if section.why}
        whole = {
            "cluster": self.cluster,
            "taken": self.taken,
            "findings": self.findings,
            "sections": sections,
            "notRead": missing,
        }
        return json.dumps(whole, indent=2) + "\n"

    def archive(self, file: Path, now: datetime) -> None:
        """Write a tar.gz, for its owner alone, which appears whole. Raises `Invalid`."""
        check_target(file)
        part = file.with_name(f".{file.name}.{os.getpid()}")
        contents = {"report.txt": self.text(), "report.json": self.json()}
        for section in self.sections:
            name = re.sub(r"[^a-z0-9]+", "-", section.title.lower()).strip("-")
            contents[f"{name}.txt"] = (
                "\n".join(section.lines) + "\n" if not section.why else f"not read: {section.why}\n"
            )
        try:
            with (
                os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream,
                tarfile.open(fileobj=stream, mode="w:gz") as archive,
            ):
                for name, text in contents.items():
                    about = tarfile.TarInfo(f"cm-kube-diagnose-{self.cluster}/{name}")
                    about.size, about.mode, about.mtime = len(text.encode()), 0o600, int(now.timestamp())
                    archive.addfile(about, io.BytesIO(text.encode()))
            os.replace(part, file)
        except OSError as err:
            raise errors.Invalid(f"{file} cannot be written: {err.strerror}", hint="name another file") from err
        finally:
            part.unlink(missing_ok=True)
