"""The page of people and credentials: who gets in, with what, until when."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from tests.head.committing import commit_session
from tests.head.csrs import csr
from tests.ui.web.conftest import Place

from bedplate.api.headapi import EnrolmentRequest
from bedplate.core.clock import ManualClock
from bedplate.head.access import NODES, USER, USERS
from bedplate.head.folder import pki
from bedplate.head.policy import ENROL
from bedplate.ui.web import credentials


async def used(place: Place, name: str, group: str, days: int) -> None:
    """Somebody asks with a certificate."""
    now = place.clock.now()
    pair = pki.Authority.make("site", now).client(name, group, now, timedelta(days=days))
    der = x509.load_pem_x509_certificate(pair.certificate).public_bytes(serialization.Encoding.DER)
    subject = {"commonName": [name], "organizationName": [group]}
    assert place.service.access.by_certificate(subject, der) is not None


@pytest.mark.parametrize(
    ("days", "words", "is_soon"),
    [
        (-2.5, "expired 2 days ago", False),
        (0.5, "in less than a day", True),
        (1.5, "in 1 day", True),
        (29.5, "in 29 days", True),
        (40.5, "in 40 days", False),
    ],
)
def test_ends_are_said_in_days(days: float, words: str, is_soon: bool) -> None:
    now = ManualClock().now()
    found = credentials.end((now + timedelta(days=days)).isoformat(), now)
    assert (found.words, found.is_soon) == (words, is_soon)
    assert credentials.end("", now) == credentials.End("never")


async def test_users_tokens_and_certificates_are_listed_by_their_ends(place: Place) -> None:
    await place.tokens.create(USER, "operator", "soon", lasts=timedelta(days=3), by="admin")
    await place.tokens.create(USER, "operator", "later", lasts=timedelta(days=300))
    await used(place, "node001", NODES, 10)
    await used(place, "operator", USERS, 365)
    page = await (await place.reader("auditor")).get("/credentials")
    assert page.status == 200
    people = {row["User"]: row for row in page.rows("Role")}
    assert people["operator"]["Role"] == "operator"
    assert (people["operator"]["Tokens"], people["operator"]["Certificates"]) == ("3", "1")
    tokens = page.rows("Made by")
    assert [row["Name"] for row in tokens[:2]] == ["soon", "later"]
    assert (tokens[0]["Expires"], tokens[0]["Made by"]) == ("in 3 days", "admin")
    assert tokens[-1]["Expires"] == "never"
    shown = page.rows("Fingerprint")
    assert [(row["Subject"], row["Of"], row["Expires"]) for row in shown] == [
        ("node001", "node", "in 10 days"),
        ("operator", "user", "in 365 days"),
    ]
    assert shown[0]["Issuer"] == "bedplate head site"
    assert len(shown[0]["Fingerprint"]) == 16
    assert "2 credentials end within 30 days." in page.text
    assert "2 credentials end within 30 days." in (await (await place.reader()).get("/")).text


async def test_the_certificate_of_an_enrolled_node_is_listed_before_it_is_used(place: Place) -> None:
    _, text = await place.tokens.create(ENROL, "node001", "", uses=1, lasts=timedelta(hours=1))
    machine, fleet = place.service.access.by_token(text), place.service.fleet
    assert machine is not None and fleet is not None
    await fleet.enrolments.ask(machine, EnrolmentRequest(csr=csr()))
    page = await (await place.reader()).get("/credentials")
    (shown,) = page.rows("Fingerprint")
    assert (shown["Subject"], shown["Of"], shown["Last used"]) == ("node001", "node", "")
    assert "within 30 days" not in page.text, "tokens of enrolments always end soon"


async def test_a_token_is_made_and_its_text_is_shown_once(place: Place) -> None:
    reader = await place.reader()
    await reader.get("/credentials")
    page = await reader.submit("/credentials/tokens", subject="operator", name="<b>laptop</b>", days="7")
    assert page.status == 201
    assert page.headers["Cache-Control"] == "no-store"
    text = next(word for word in page.text.split() if word.startswith("bph_"))
    identity = place.service.access.by_token(text)
    assert identity is not None
    assert identity.name == "operator"
    assert "<b>laptop" not in page.html
    page = await reader.get("/credentials")
    assert text not in page.html
    assert ("operator", "in 7 days", "admin") in [
        (row["Owner"], row["Expires"], row["Made by"]) for row in page.rows("Made by")
    ]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"subject": "nobody"}, "there is no user 'nobody'"),
        ({"subject": "nobody", "kind": "node"}, "there is no device 'nobody'"),
        ({"subject": "operator", "days": "-1"}, "must be a number of days"),
        ({"subject": "operator", "days": "99999"}, "the token cannot be made"),
        ({"subject": "\u202e", "days": "1"}, "the token cannot be made"),
    ],
)
async def test_what_is_no_token_is_refused_in_the_form(place: Place, changed: dict[str, str], words: str) -> None:
    before = len(place.tokens.list())
    reader = await place.reader()
    await reader.get("/credentials")
    page = await reader.submit("/credentials/tokens", **changed)
    assert page.status == 422
    assert words in page.text
    assert page.form("/credentials/tokens").fields["subject"] == changed["subject"]
    assert len(place.tokens.list()) == before


async def test_a_token_is_revoked_but_not_the_one_that_is_used(place: Place) -> None:
    other, _ = await place.tokens.create(USER, "operator", "other")
    operator = await place.reader("operator")
    reader = await place.reader()
    page = await reader.get("/credentials")
    assert "you use it" in page.text
    page = await reader.submit(f"/credentials/tokens/{other.id}/revoke")
    assert f"The token {other.id} of operator is revoked." in page.text
    assert other.id not in [token.id for token in place.tokens.list()]
    own = next(token.id for token in place.tokens.list() if token.subject == "admin")
    form_token = page.form("/credentials/tokens").fields["form_token"]
    page = await reader.post(f"/credentials/tokens/{own}/revoke", {"form_token": form_token})
    assert page.status == 400
    assert "this is the token that this request uses" in page.text
    assert (await reader.post("/credentials/tokens/none/revoke", {"form_token": form_token})).status == 404
    held = next(token.id for token in place.tokens.list() if token.subject == "operator")
    await reader.get("/credentials")
    await reader.submit(f"/credentials/tokens/{held}/revoke")
    assert "Sign in" in (await operator.get("/credentials")).text, "who signed in with it is out"


async def test_a_certificate_is_revoked(place: Place) -> None:
    await used(place, "node001", NODES, 100)
    reader = await place.reader()
    await reader.get("/credentials")
    page = await reader.submit("/credentials/certificates/revoke")
    assert "of node001 is revoked." in page.text
    assert page.rows("Fingerprint")[0]["Revoked"] == "revoked"
    assert not any(form.action == "/credentials/certificates/revoke" for form in page.forms)
    (revoked,) = place.tokens.revocations.list()
    assert revoked.by == "admin"
    form_token = page.form("/credentials/tokens").fields["form_token"]
    for text, status in (("nonsense", 400), ("ab" * 32, 404), ("", 404)):
        fields = {"form_token": form_token, "fingerprint": text}
        assert (await reader.post("/credentials/certificates/revoke", fields)).status == status


@pytest.mark.parametrize("user", ["operator", "auditor"])
async def test_others_than_administrators_read_and_change_nothing(place: Place, user: str) -> None:
    reader = await place.reader(user)
    page = await reader.get("/credentials")
    assert page.status == 200
    assert [form.action for form in page.forms if form.action.startswith("/credentials/")] == []
    form_token = page.form("/logout").fields["form_token"]
    id_ = place.tokens.list()[0].id
    for address in ("tokens", f"tokens/{id_}/revoke", "certificates/revoke"):
        fields = {"form_token": form_token, "subject": user, "fingerprint": "ab" * 32}
        assert (await reader.post(f"/credentials/{address}", fields)).status == 403, address
    assert len(place.tokens.list()) == 3


async def test_a_form_of_another_page_changes_nothing(place: Place) -> None:
    reader = await place.reader()
    id_ = next(token.id for token in place.tokens.list() if token.subject == "operator")
    for address in ("tokens", f"tokens/{id_}/revoke", "certificates/revoke"):
        page = await reader.post(f"/credentials/{address}", {"subject": "admin", "fingerprint": "ab" * 32})
        assert page.status == 403
    assert len(place.tokens.list()) == 3


async def test_the_filter_finds_and_the_rest_is_counted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_SHOWN", 2)
    session = place.head.session()
    zoe = session.add(("user",), "zoe")
    session.set(zoe, "role", "operator")
    session.set(zoe, "token", "0123456789abcdef0123456789abcdef")
    await commit_session(place.head, session, "setup")
    reader = await place.reader()
    page = await reader.get("/credentials")
    assert "1 more are not shown" in page.text
    assert "0123456789abcdef" not in page.html
    assert {row["User"]: row["Remark"] for row in page.rows("Role")}["zoe"].startswith("a token in the object")
    page = await reader.get("/credentials?q=audit")
    assert [row["Owner"] for row in page.rows("Made by")] == ["auditor"]
    assert [row["User"] for row in page.rows("Role")] == ["auditor"]
    assert "<i>" not in (await reader.get("/credentials?q=<i>")).html
