"""Who gets in, who may do what, and that forms of other pages do nothing."""

from __future__ import annotations

from http.cookies import SimpleCookie

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from tests.head.committing import commit_session
from tests.ui.web.conftest import Place

from bedplate.core import errors
from bedplate.head.service import NotActive
from bedplate.store.interface import NoQuorum
from bedplate.ui.rest import app
from bedplate.ui.web import engine, visit
from bedplate.ui.web.logins import IDLE_S

SOME_FORMS = [
    "/changes/commit",
    "/changes/drop",
    "/edit/device/node001",
    "/add/device",
    "/remove/device/node001",
    "/clone/device/node001",
    "/history/1/undo",
]


async def test_nobody_reads_without_signing_in(place: Place) -> None:
    reader = await place.reader("")
    for address in ("/", "/show/device/node001", "/events/stream", "/nowhere", "/file?node=node001&path=/x"):
        page = await reader.get(address)
        assert "node001" not in page.text
        assert "Sign in" in page.text
    await reader.get("/show/device/node001?at=1")
    page = await reader.submit("/login", token=place.signed["admin"])
    assert "This is how it was at revision 1" in page.text, "after signing in the wanted page comes"


@pytest.mark.parametrize("token", ["", "wrong", "bph_0000000000_00", "x" * 10_000])
async def test_a_wrong_token_is_refused(place: Place, token: str) -> None:
    reader = await place.reader("")
    page = await reader.sign_in(token)
    assert page.status == 401
    assert "The token is not valid" in page.text
    assert token not in page.html or len(token) < 6
    assert "Sign in" in (await reader.get("/")).text


@pytest.mark.parametrize("size", [17_000, 2_000_000])
async def test_a_large_form_of_a_stranger_is_refused_unread(place: Place, size: int) -> None:
    reader = await place.reader("")
    page = await reader.sign_in("x" * size)
    assert page.status == 413
    assert "too large" in page.text


async def test_failed_sign_ins_on_the_page_are_notified(place: Place) -> None:
    reader = await place.reader("")
    for _ in range(5):
        assert (await reader.sign_in("wrong")).status == 401
    assert "5 failed sign-ins from 127.0.0.1" in place.service.notices.latest()[0].text


async def test_a_form_of_more_than_a_mebibyte_is_refused(place: Place) -> None:
    reader = await place.reader("admin")
    form = (await reader.get("/edit/device/node001")).form("/edit/device/node001")
    page = await reader.post("/edit/device/node001", form.fields | {"notes": "x" * 1_100_000})
    assert page.status == 400
    assert "too large" in page.text


async def test_a_nodes_token_opens_nothing(place: Place) -> None:
    _, text = await place.tokens.create("node", "node001", "node001")
    page = await (await place.reader("")).sign_in(text)
    assert page.status == 401


async def test_the_cookie_is_kept_from_scripts_and_other_sites(place: Place) -> None:
    reader = await place.reader("")
    await reader.get("/login")
    fields = reader.page.form("/login").fields | {"token": place.signed["admin"]}
    async with reader.client.post("/login", data=fields, allow_redirects=False) as response:
        assert response.status == 303
        cookies: SimpleCookie = response.cookies
    held = cookies[f"bedplate_login_{reader.client.port}"]
    assert held["httponly"] is True
    assert held["samesite"] == "Strict"
    assert len(held.value) >= 32


@pytest.mark.parametrize(
    "onward",
    [
        *("//evil.example/x", "https://evil.example", "/\\evil.example", "javascript:alert(1)"),
        *("/\t/evil.example", "/\n/evil.example", "/\r\nSet-Cookie: a=b", "/x\x00", "/\u2028/x", "/\x85/x", "/x\\y"),
    ],
)
async def test_signing_in_leads_to_pages_of_this_head_alone(place: Place, onward: str) -> None:
    reader = await place.reader("")
    await reader.get("/login")
    fields = reader.page.form("/login").fields | {"token": place.signed["admin"], "next": onward}
    async with reader.client.post("/login", data=fields, allow_redirects=False) as response:
        assert response.headers["Location"] == "/"


async def test_only_the_active_head_becomes_a_link(place: Place) -> None:
    reader = await place.reader("admin")
    page = await reader.get("/x/https://evil.example/y")
    assert page.status == 404
    assert "https://evil.example" in page.text
    assert not [link for link in page.links() if "evil" in link]
    for text, is_linked in (
        ("write to https://head2:8081", True),
        ("write to https://head2:80812", False),
        ("write to https://head2:8081.evil.example", False),
        ("write to https://head2:8081@evil.example", False),
        ("write to https://evil.example", False),
    ):
        assert ("<a" in engine._linked(text, "https://head2:8081")) == is_linked, text


async def test_over_tls_cookies_are_bound_to_the_host_and_browsers_insist_on_tls(place: Place) -> None:
    request = make_mocked_request("GET", "https://head:8081/login", headers={"Host": "head:8081"})
    secure = request.clone(scheme="https")
    answer = web.Response()
    visit.set_cookie(secure, answer, "login", "number")
    visit.set_cookie(secure, answer, "form", "")
    for name in ("__Host-bedplate_login_8081", "__Host-bedplate_form_8081"):
        cookie = answer.cookies[name]
        assert (cookie["path"], cookie["secure"], cookie["domain"]) == ("/", True, "")
    for scheme, header in (("https", "max-age=31536000"), ("http", None)):
        answer = web.Response()
        await app._insist_on_tls(request.clone(scheme=scheme), answer)
        assert answer.headers.get("Strict-Transport-Security") == header
    async with (await place.reader("")).client.get("/login") as response:
        assert "Strict-Transport-Security" not in response.headers


async def test_signing_in_needs_the_forms_own_number(place: Place) -> None:
    reader = await place.reader("")
    page = await reader.post("/login", {"token": place.signed["admin"], "form_token": "made up"})
    assert page.status == 400, "without the cookie of the form"
    await reader.get("/login")
    page = await reader.post("/login", {"token": place.signed["admin"], "form_token": "made up"})
    assert page.status == 400, "with the cookie of another form"
    await reader.get("/login")
    fields = reader.page.form("/login").fields | {"token": place.signed["admin"]}
    page = await reader.post("/login", fields, {"Origin": "https://evil.example"})
    assert page.status == 400
    assert "Sign in" in (await reader.get("/")).text


@pytest.mark.parametrize("address", SOME_FORMS)
async def test_a_form_without_the_logins_token_changes_nothing(place: Place, address: str) -> None:
    reader = await place.reader()
    for token in ("", "made up"):
        page = await reader.post(address, {"form_token": token, "name": "x", "message": "x"})
        assert page.status == 403, page.text
    good = (await reader.get("/")).form("/logout").fields["form_token"]
    page = await reader.post(address, {"form_token": good, "name": "x"}, {"Origin": "https://evil.example"})
    assert page.status == 403
    assert place.head.revision == 1
    assert "Changes 0" in (await reader.get("/")).text


@pytest.mark.parametrize("address", SOME_FORMS)
async def test_an_auditor_reads_and_cannot_post(place: Place, address: str) -> None:
    reader = await place.reader("auditor")
    token = (await reader.get("/")).form("/logout").fields["form_token"]
    page = await reader.post(address, {"form_token": token, "name": "x", "message": "x"})
    assert page.status == 403
    assert "auditor (role auditor) has read-only access" in page.text
    assert place.head.revision == 1


async def test_an_auditor_sees_no_form_for_editing(place: Place) -> None:
    reader = await place.reader("auditor")
    for address in (
        "/",
        "/show/device",
        "/show/device/node001",
        "/changes",
        "/history/1",
        "/show/category/default/roles",
    ):
        page = await reader.get(address)
        assert page.status == 200
        assert {form.action for form in page.forms if form.method == "post"} == {"/logout"}, address
        assert not [way for way in page.links() if way.startswith(("/edit", "/add")) or way.endswith("/undo")]
    for address in ("/edit/device/node001", "/add/device", "/history/1/undo"):
        page = await reader.get(address)
        assert page.status == 403
        assert "What to do" in page.text


async def test_an_operator_edits_nodes_but_neither_users_nor_secrets(place: Place) -> None:
    reader = await place.reader("operator")
    page = await reader.get("/edit/user/operator")
    assert page.status == 403
    assert "operator" in page.text
    await reader.get("/edit/kubernetes/default")
    await reader.submit("/edit/kubernetes/default", f__kube_ca_key="secret words")
    page = await reader.get("/changes")
    assert "you cannot commit all of this" in page.text
    page = await reader.submit("/changes/commit", message="")
    assert page.status == 409
    assert place.head.revision == 1


async def test_an_operator_cannot_undo_what_was_done_to_users(place: Place) -> None:
    session = place.head.session()
    session.set(("user", "operator"), "role", "operator")
    session.set(("user", "auditor"), "enabled", "no")
    await commit_session(place.head, session, "admin", "shut out")
    reader = await place.reader("operator")
    page = await reader.get("/history/2/undo")
    assert "may not edit user objects" in page.text
    page = await reader.submit("/history/2/undo")
    assert page.status == 409
    assert place.head.revision == 2


async def test_signing_out_ends_the_login_and_drops_what_was_staged(place: Place) -> None:
    reader = await place.reader()
    await reader.get("/edit/device/node001")
    await reader.submit("/edit/device/node001", f__notes="staged")
    await reader.submit("/logout")
    page = await reader.submit("/logout?staged=discard")
    assert "Sign in" in page.text
    assert "Sign in" in (await reader.get("/")).text
    await reader.sign_in(place.signed["admin"])
    assert "Changes 0" in reader.page.text


async def test_a_login_ends_with_its_token_its_user_or_silence(place: Place) -> None:
    reader = await place.reader("operator")
    session = place.head.session()
    session.set(("user", "operator"), "enabled", "no")
    await commit_session(place.head, session, "setup")
    assert "Sign in" in (await reader.get("/")).text

    reader = await place.reader("auditor")
    await place.tokens.revoke(place.signed["auditor"].split("_")[1])
    assert "Sign in" in (await reader.get("/")).text

    reader = await place.reader("admin")
    place.clock._monotonic += IDLE_S + 1
    assert "Sign in" in (await reader.get("/")).text


async def test_a_form_of_a_login_that_ended_says_so(place: Place) -> None:
    reader = await place.reader()
    await reader.get("/edit/device/node001")
    fields = reader.page.form("/edit/device/node001").fields
    await place.tokens.revoke(place.signed["admin"].split("_")[1])
    page = await reader.post("/edit/device/node001", fields)
    assert page.status == 401
    assert "Your session has expired" in page.text


async def test_a_role_that_changed_counts_at_once(place: Place) -> None:
    reader = await place.reader("operator")
    session = place.head.session()
    session.set(("user", "operator"), "role", "auditor")
    await commit_session(place.head, session, "setup")
    assert (await reader.get("/edit/device/node001")).status == 403


async def test_a_head_that_is_not_the_active_one_says_where_to_write(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = await place.reader()
    await reader.get("/edit/device/node001")
    await reader.submit("/edit/device/node001", f__notes="words")

    def passive() -> None:
        raise errors.Unavailable("this head node follows", hint="commit at https://other:8081")

    monkeypatch.setattr(place.head.standing, "refuse_writes", passive)
    monkeypatch.setattr(place.head.standing, "active_url", "https://other:8081")
    await reader.get("/changes")
    page = await reader.submit("/changes/commit", message="")
    assert "commit at https://other:8081" in page.text
    assert "https://other:8081/" in page.links()
    assert "Changes 1" in page.text
    assert place.head.revision == 1


async def test_a_passive_head_says_so_on_every_page_and_offers_no_edit(place: Place) -> None:
    class Passive:
        is_active, active_name, active_url, trouble = False, "other", "https://other:8081", ""

        def refuse_writes(self) -> None:
            raise NotActive(self.active_name, self.active_url)

    reader = await place.reader()
    place.head.standing = Passive()
    for address in ("/", "/show/device", "/show/device/node001", "/history", "/changes", "/events", "/search?q=node"):
        page = await reader.get(address)
        assert page.status == 200
        assert "This head node is passive" in page.text, address
        assert "https://other:8081" in page.links()
        assert [link for link in page.links() if link.startswith(("/edit/", "/add/"))] == [], address
    page = await reader.get("/edit/device/node001")
    assert page.status == 503
    assert "this head node is passive; other is active" in page.text


async def test_an_etcd_without_quorum_is_called_that_on_every_page(place: Place) -> None:
    reader = await place.reader()
    place.head.standing.trouble = str(NoQuorum(1, 3))
    for address in ("/", "/show/device", "/history"):
        assert "etcd has no quorum: 1 of 3 members answer" in (await reader.get(address)).text


async def test_login_pages_hold_a_fresh_number_each(place: Place) -> None:
    reader = await place.reader("")
    numbers = {(await reader.get("/login")).form("/login").fields["form_token"] for _ in range(3)}
    assert len(numbers) == 3


async def test_signing_out_with_staged_changes_asks_first(place: Place) -> None:
    reader = await place.reader()
    await reader.get("/edit/device/node001")
    await reader.submit("/edit/device/node001", f__notes="x")
    page = await reader.submit("/logout")
    assert page.status == 200
    assert "Signing out discards what is staged" in page.text
    assert "Changes 1" in (await reader.get("/")).text
    await reader.submit("/logout")
    page = await reader.submit("/logout?staged=discard")
    assert "Sign in" in page.text
