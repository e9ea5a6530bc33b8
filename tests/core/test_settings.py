"""Settings: order of layers, conversion, and all problems at once."""

from pathlib import Path

import msgspec
import pytest

from bedplate.core import errors, settings


class Lease(msgspec.Struct, frozen=True):
    duration: settings.Duration = 15.0
    renew: settings.Duration = 10.0

    def __post_init__(self) -> None:
        if self.renew >= self.duration:
            raise ValueError("renew must be shorter than duration")


class Program(msgspec.Struct, frozen=True):
    name: str
    workers: int = 4
    names: tuple[str, ...] = ()
    dry_run: bool = False
    lease: Lease = Lease()


def test_a_later_layer_wins_over_an_earlier_one(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("name: from-file\nworkers: 8\nlease: {duration: 30s, renew: 20s}\n")
    environ = {"BEDPLATE_WORKERS": "16", "BEDPLATE_LEASE_RENEW": "25s"}
    loaded = settings.load(Program, file=file, environ=environ, flags={"lease.renew": "28s", "dry_run": None})
    assert loaded.value == Program("from-file", 16, (), False, Lease(30.0, 28.0))
    assert loaded.sources["name"] == f"file {file}"
    assert loaded.sources["workers"] == "environment BEDPLATE_WORKERS"
    assert loaded.sources["lease.renew"] == "flag --lease-renew"
    assert loaded.sources["dry_run"] == "default"


def test_text_from_the_environment_becomes_the_declared_type() -> None:
    environ = {"BEDPLATE_NAME": "n", "BEDPLATE_DRY_RUN": "true", "BEDPLATE_NAMES": "a, b"}
    value = settings.load(Program, environ=environ).value
    assert value.dry_run is True
    assert value.names == ("a", "b")


def test_every_problem_of_every_layer_is_reported_together(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("wrokers: 8\nlease: {duration: soon}\n")
    with pytest.raises(errors.Invalid) as caught:
        settings.load(Program, file=file, environ={"BEDPLATE_WORKERS": "many"}, flags={"nam": "x"})
    text = str(caught.value)
    assert len(caught.value.problems) == 5
    assert "name: is required" in text
    assert "did you mean workers?" in text
    assert "'soon' is not a duration" in text
    assert "environment BEDPLATE_WORKERS: workers" in text
    assert "flag --nam: no such setting (did you mean name?)" in text


def test_a_value_that_was_refused_is_not_also_called_missing() -> None:
    class Counted(msgspec.Struct, frozen=True):
        count: int
        lease: Lease = Lease()

    with pytest.raises(errors.Invalid) as caught:
        settings.load(Counted, environ={"BEDPLATE_COUNT": "many"}, flags={"lease.renew": "20s"})
    assert len(caught.value.problems) == 2
    assert "lease: renew must be shorter" in str(caught.value)


def test_defaults_that_a_program_gives_a_nested_part_are_kept() -> None:
    class Patient(msgspec.Struct, frozen=True):
        lease: Lease = Lease(60.0, 40.0)

    assert settings.load(Patient).value == Patient()
    assert settings.load(Patient, flags={"lease.renew": "50s"}).value.lease == Lease(60.0, 50.0)


def test_a_missing_required_value_is_named() -> None:
    with pytest.raises(errors.Invalid, match="name: is required"):
        settings.load(Program)


def test_values_are_judged_against_each_other() -> None:
    with pytest.raises(errors.Invalid, match="lease: renew must be shorter"):
        settings.load(Program, flags={"name": "n", "lease.renew": "15s"})


@pytest.mark.parametrize(
    ("content", "problem"), [("[1]", "holds a list"), ("a: [", "is not YAML"), (None, "cannot be read")]
)
def test_an_unusable_file_is_an_error_not_an_empty_one(tmp_path: Path, content: str | None, problem: str) -> None:
    file = tmp_path / "settings.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(errors.Invalid, match=problem):
        settings.load(Program, file=file, flags={"name": "n"})


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("")
    assert settings.load(Program, file=file, flags={"name": "n"}).value == Program("n")
