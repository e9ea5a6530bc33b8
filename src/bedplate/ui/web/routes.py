"""The addresses of the page, and which handler answers each."""

from __future__ import annotations

from aiohttp import web

from bedplate.core import errors
from bedplate.head.daemon import Service
from bedplate.ui.web import bulk, commits, credentials, edits, engine, events, images, pages, people, progress, setups
from bedplate.ui.web.logins import Logins
from bedplate.ui.web.signing import Signing
from bedplate.ui.web.visit import Door, Visit

__all__ = ["routes"]


def routes(service: Service) -> list[web.AbstractRouteDef]:
    """Every address the page answers. The last one answers whatever nobody else does, but for the API."""
    logins = Logins(service.clock, service.sittings)
    door, signing = Door(service, logins), Signing(service, logins)
    return [
        web.get("/static/{name}", _static),
        web.get("/login", signing.form),
        web.post("/login", signing.sign_in),
        web.post("/logout", door.own_form(signing.sign_out())),
        web.get("/", door.page(pages.overview)),
        web.get("/show/{path:.+}", door.page(pages.show)),
        web.get("/health", door.page(pages.health)),
        web.get("/images", door.page(images.images)),
        web.get("/rollout", door.page(progress.rollout)),
        web.post("/rollout/{action:pause|resume|undo}", door.form(progress.act)),
        web.get("/pending/file", door.page(progress.pending_file)),
        web.get("/setup", door.page(setups.overview)),
        web.get("/setup/deploy", door.editor(setups.form)),
        web.post("/setup/deploy", door.form(setups.deploy)),
        web.post("/setup/check", door.form(setups.check)),
        web.get("/setup/runs/{cluster}", door.page(setups.run)),
        web.get("/setup/runs/{cluster}/remove", door.editor(setups.remove_form)),
        web.post("/setup/runs/{cluster}/{action:resume|undo|abort|remove}", door.form(setups.act)),
        web.get("/roles", door.page(pages.roles)),
        web.get("/appgroups", door.page(pages.app_groups)),
        web.get("/people", door.page(people.people)),
        web.get("/people/{cluster}", door.page(people.people)),
        web.post("/people/{cluster}/adopt", door.form(people.adopt)),
        web.get("/credentials", door.page(credentials.credentials)),
        web.post("/credentials/tokens", door.form(credentials.create_token)),
        web.post("/credentials/tokens/{id}/revoke", door.form(credentials.revoke_token)),
        web.post("/credentials/certificates/revoke", door.form(credentials.revoke_certificate)),
        web.get("/file", door.page(pages.file)),
        web.get("/search", door.page(pages.search)),
        web.get("/edit/{path:.+}", door.editor(edits.edit_form)),
        web.post("/edit/{path:.+}", door.form(edits.edit)),
        web.get("/add/{path:.+}", door.editor(edits.add_form)),
        web.post("/add/{path:.+}", door.form(edits.add)),
        web.post("/clone/{path:.+}", door.form(edits.clone)),
        web.post("/remove/{path:.+}", door.form(edits.remove)),
        web.get("/bulk/{mode}", door.editor(bulk.chosen_by_filter)),
        web.post("/bulk/{mode}", door.form(bulk.edit)),
        web.get("/changes", door.page(commits.changes)),
        web.get("/changes/file", door.page(commits.changed_file)),
        web.post("/changes/commit", door.form(commits.commit)),
        web.post("/changes/drop", door.form(commits.drop)),
        web.get("/history", door.page(commits.history)),
        web.get(r"/history/{number:\d{1,12}}", door.page(commits.revision)),
        web.get(r"/history/{number:\d{1,12}}/progress", door.page(progress.revision)),
        web.get(r"/history/{number:\d{1,12}}/file", door.page(commits.revision_file)),
        web.get(r"/history/{number:\d{1,12}}/undo", door.editor(commits.undo_form)),
        web.post(r"/history/{number:\d{1,12}}/undo", door.form(commits.undo)),
        web.get("/events", door.page(events.events)),
        web.get("/events/stream", door.page(events.stream)),
        web.get("/{path:(?!api/|api$).*}", door.page(_nothing)),
    ]


async def _static(request: web.Request) -> web.StreamResponse:
    file = engine.static(request.match_info["name"])
    if file is None:
        return web.Response(status=404, text="the page has no such file\n")
    kept = "public, max-age=31536000, immutable" if request.query.get("v") == file.digest else "no-cache"
    headers = {**engine.SECURITY, "Cache-Control": kept, "ETag": f'"{file.digest}"'}
    return web.Response(body=file.body, content_type=file.type, charset="utf-8", headers=headers)


async def _nothing(visit: Visit) -> web.StreamResponse:
    raise errors.NotFound(f"there is nothing at {visit.request.path}", hint="use the menu or the search")
