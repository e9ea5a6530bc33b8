"""Certificates that the head renews in users' homes."""

from __future__ import annotations

import base64
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from tests.head.people.conftest import Site
from tests.waiting import until

from bedplate.api import permissions
from bedplate.core import clock
from bedplate.kube import config
from bedplate.people import certificates, grants, issue, kubeconfig
from bedplate.people.certificates import Authority
from bedplate.people.kubeconfig import Credentials
from bedplate.setup.people.request import Action


def expiry(file: Path) -> datetime:
    (user,) = yaml.safe_load(file.read_text())["users"]
    return certificates.expiry_of(base64.b64decode(user["user"]["client-certificate-data"]))


async def age(site: Site, user: str, name: str, since: timedelta, life: timedelta) -> None:
    """Let the certificate of a user be one that was issued so long ago for so long; `name` is that of the cluster."""
    key, request = certificates._new_request(user)
    authority = Authority(site.pki / "ca.crt", site.pki / "ca.key")
    issued = datetime.now(UTC) - since
    held = Credentials(certificates._signed_here(authority, user, request, life, issued), key)
    place = issue._place(name, config.load(site.world.server.kubeconfig, environ={}))
    file = site.kubeconfig(user)
    text = kubeconfig.with_entries(file.read_bytes(), place, user, "", held, is_current=False)
    file.write_bytes(text)
    notes = {grants.ISSUED: clock.rfc3339(issued), grants.EXPIRES: clock.rfc3339(issued + life)}
    for obj in await site.objects(user):
        patch = {"metadata": {"annotations": notes}}
        await site.client.patch(grants.USERS, obj["metadata"]["name"], patch, permissions.NAMESPACE)


async def test_a_certificate_is_renewed_before_it_runs_out_and_the_file_is_merged(site: Site) -> None:
    await site.put("john")
    await site.tells("Issued the certificate of john")
    await site.stop()
    await age(site, "john", "default", timedelta(days=81), timedelta(days=100))
    file = site.kubeconfig("john")
    document = yaml.safe_load(file.read_text())
    document["contexts"].append({"name": "mine", "context": {"cluster": "elsewhere", "user": "me"}})
    document["current-context"] = "mine"
    file.write_text(yaml.safe_dump(document))
    first = expiry(file)
    await site.start()
    text = await site.tells("Renewed the certificate of john")
    assert f"{datetime.now(UTC) + timedelta(days=100):%Y-%m-%d}" in text
    after = yaml.safe_load(file.read_text())
    assert expiry(file) > first
    assert after["current-context"] == "mine"
    assert "mine" in [context["name"] for context in after["contexts"]]
    assert (stat.S_IMODE(file.stat().st_mode), file.stat().st_uid) == (0o600, os.getuid())


async def test_a_head_that_was_off_for_years_catches_up_also_for_the_tools_users(site: Site) -> None:
    for user in ("anna", "john"):
        await site.world.run(Action.ADD, user, name="default")
    await site.stop()
    for user in ("anna", "john"):
        await age(site, user, "default", timedelta(days=1000), timedelta(days=30))
    site.kubeconfig("john").unlink()
    await site.start()
    text = await site.tells("Renewed the certificate of anna")
    assert f"{datetime.now(UTC) + timedelta(days=30):%Y-%m-%d}" in text
    told = await site.tells("User john: the certificate expires on")
    assert "cm-kubernetes-setup --renew-user john" in told
    assert not site.kubeconfig("john").exists()
    await until(lambda: "has no entry of john" in site.rows("john")[0].access, "the list says so")


async def test_a_certificate_that_somebody_else_renewed_is_only_noted(site: Site) -> None:
    await site.world.run(Action.ADD, "anna", name="default")
    await site.stop()
    await age(site, "anna", "default", timedelta(days=1000), timedelta(days=30))
    await site.world.run(Action.RENEW, "anna", name="default")
    before = site.kubeconfig("anna").read_bytes()
    (obj,) = await site.objects("anna")
    notes = {grants.EXPIRES: "2020-01-01T00:00:00Z", grants.ISSUED: None}
    patch = {"metadata": {"annotations": notes}}
    await site.client.patch(grants.USERS, obj["metadata"]["name"], patch, permissions.NAMESPACE)
    await site.start()
    until_then = expiry(site.kubeconfig("anna"))
    await until(
        lambda: site.rows("anna") and site.rows("anna")[0].expires == clock.rfc3339(until_then), "the date is corrected"
    )
    assert site.kubeconfig("anna").read_bytes() == before


async def test_a_removed_user_is_never_renewed(site: Site) -> None:
    await site.put("john")
    await site.tells("Issued the certificate of john")
    await site.stop()
    await age(site, "john", "default", timedelta(days=81), timedelta(days=100))
    before = site.kubeconfig("john").read_bytes()
    await site.remove("john")
    await site.start()
    await site.tells("User john has no rights")
    await until(lambda: not site.people.book.items(), "the record is gone")
    # The entries come back, from a backup of the home folder for example.
    site.kubeconfig("john").write_bytes(before)
    await site.stop()
    await site.start()
    await until(lambda: site.people.state("default").reached, "the cluster was looked at again")
    assert site.kubeconfig("john").read_bytes() == before
    assert not [text for text in site.texts() if "Renewed" in text]


async def test_a_home_that_cannot_be_written_is_said_and_rights_are_given(site: Site) -> None:
    site.kubeconfig("john").parent.parent.mkdir(exist_ok=True)
    site.kubeconfig("john").parent.symlink_to("/var")
    await site.put("john")
    await site.reaches("john", "ready")
    told = await site.tells("User john: the certificate was not issued")
    assert "a link is not followed" in told
    await until(lambda: site.rows("john")[0].access, "the list says so")


async def test_nobody_who_edits_users_of_clusters_gives_root_of_a_head_node_a_kubeconfig(site: Site) -> None:
    await site.put("root", uid="0", gids="0", paths="none")
    await site.tells("the head makes no kubeconfig for root")
    await site.put("john")
    await site.tells("Issued the certificate of john")
    assert not site.kubeconfig("root").exists()
