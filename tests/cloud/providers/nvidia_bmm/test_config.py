"""The configuration: file and environment, required keys, unknown keys, and that nothing shows a token."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from bedplate.cloud.providers.nvidia_bmm.config import Config, load, oddities
from bedplate.cloud.providers.nvidia_bmm.settings import variable
from bedplate.core.errors import Invalid

SITE, TENANT = "550e8400-e29b-41d4-a716-446655440000", "660e8400-e29b-41d4-a716-446655440001"
SEED = f"""
endpoint: "https://api.carbide.nvidia.com"
orgName: "your-org-name"
token: "your-api-token"
siteId: "{SITE}"
tenantId: "{TENANT}"
"""
ENVIRON = {
    "NVIDIA_BMM_ENDPOINT": "https://other.example.com/",
    "NVIDIA_BMM_ORG_NAME": "env-org",
    "NVIDIA_BMM_TOKEN": "env-token",
    "NVIDIA_BMM_SITE_ID": "env-site",
    "NVIDIA_BMM_TENANT_ID": "env-tenant",
}


def written(folder: Path, text: str) -> Path:
    file = folder / "cloud-config"
    file.write_text(text)
    return file


def test_the_documents_own_file_is_enough(tmp_path: Path) -> None:
    file = written(tmp_path, SEED)
    config = load(file, {})
    assert (config.endpoint, config.org) == ("https://api.carbide.nvidia.com", "your-org-name")
    assert (config.site_id, config.tenant_id) == (SITE, TENANT)
    assert config.token.config_file == file, "the token stays in the file, so that a new one is noticed"
    assert (config.api_version, config.api_name) == ("v2", "carbide")
    assert oddities(config) == []


def test_every_variable_overrides_its_key_of_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, SEED)
    config = load(file, ENVIRON)
    assert (config.endpoint, config.org) == ("https://other.example.com", "env-org")
    assert (config.site_id, config.tenant_id) == ("env-site", "env-tenant")
    assert config.token.value.reveal() == "env-token" and config.token.config_file is None
    for name in ENVIRON:
        one = load(file, {name: ENVIRON[name]})
        differing = sum(
            getattr(one, field) != getattr(load(file, {}), field)
            for field in ("endpoint", "org", "token", "site_id", "tenant_id")
        )
        assert differing == 1, f"{name} changes exactly its own key"


def test_an_empty_variable_overrides_nothing(tmp_path: Path) -> None:
    assert load(written(tmp_path, SEED), dict.fromkeys(ENVIRON, "")) == load(written(tmp_path, SEED), {})


@pytest.mark.parametrize("text", [None, "", "# nothing\n", "{}"])
def test_no_file_or_an_empty_one_is_fine_when_the_environment_has_all(tmp_path: Path, text: str | None) -> None:
    config = load(None if text is None else written(tmp_path, text), ENVIRON)
    assert config.org == "env-org"


def test_every_missing_key_is_named_with_its_variable() -> None:
    with pytest.raises(Invalid) as caught:
        load(None, {})
    text = str(caught.value)
    for key, name in zip(("endpoint", "orgName", "token", "siteId", "tenantId"), ENVIRON, strict=True):
        assert key in text and name in text
    assert len(caught.value.problems) == 5


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("endpoint", "NVIDIA_BMM_ENDPOINT"),
        ("tokenFile", "NVIDIA_BMM_TOKEN_FILE"),
        ("apiVersion", "NVIDIA_BMM_API_VERSION"),
        ("caFile", "NVIDIA_BMM_CA_FILE"),
        ("zoneMapping", "NVIDIA_BMM_ZONE_MAPPING"),
        ("instanceTypeSource", "NVIDIA_BMM_INSTANCE_TYPE_SOURCE"),
        ("addressCIDRs.internal", "NVIDIA_BMM_ADDRESS_CIDRS_INTERNAL"),
        ("nodeNameMatch", "NVIDIA_BMM_NODE_NAME_MATCH"),
        ("labels.include", "NVIDIA_BMM_LABELS_INCLUDE"),
        ("oidc.clientSecretFile", "NVIDIA_BMM_OIDC_CLIENT_SECRET_FILE"),
    ],
)
def test_the_variable_of_a_key(key: str, name: str) -> None:
    assert variable(key) == name


FULL = (
    SEED
    + f"""
apiVersion: v3
apiName: forge
caFile: CA_FILE
insecure: true
zone: z
region: r
zoneMapping: {{{SITE}: zone-a}}
regionMapping: {{{SITE}: region-a}}
regionSource: location
instanceTypeSource: legacy
addressCIDRs: {{internal: [10.0.0.0/8, "fd00::/8"], external: [198.51.100.0/24]}}
nodeNameMatch: ip
labels: {{prefix: example.com/, include: [vpc, nvlink-domain]}}
"""
)


def test_all_optional_keys_are_read_from_the_file(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.touch()
    check_full(load(written(tmp_path, FULL.replace("CA_FILE", str(bundle))), {}), bundle)


def test_all_optional_keys_are_read_from_the_environment(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.touch()
    environ = {
        "NVIDIA_BMM_API_VERSION": "v3",
        "NVIDIA_BMM_API_NAME": "forge",
        "NVIDIA_BMM_CA_FILE": str(bundle),
        "NVIDIA_BMM_INSECURE": "true",
        "NVIDIA_BMM_ZONE": "z",
        "NVIDIA_BMM_REGION": "r",
        "NVIDIA_BMM_ZONE_MAPPING": f"{SITE}=zone-a",
        "NVIDIA_BMM_REGION_MAPPING": f" {SITE} = region-a ,",
        "NVIDIA_BMM_REGION_SOURCE": "location",
        "NVIDIA_BMM_INSTANCE_TYPE_SOURCE": "legacy",
        "NVIDIA_BMM_ADDRESS_CIDRS_INTERNAL": "10.0.0.0/8,fd00::/8",
        "NVIDIA_BMM_ADDRESS_CIDRS_EXTERNAL": "198.51.100.0/24",
        "NVIDIA_BMM_NODE_NAME_MATCH": "ip",
        "NVIDIA_BMM_LABELS_PREFIX": "example.com/",
        "NVIDIA_BMM_LABELS_INCLUDE": "vpc, nvlink-domain",
    }
    check_full(load(None, ENVIRON | environ), bundle)


def check_full(config: Config, bundle: Path) -> None:
    assert (config.api_version, config.api_name, config.ca_file) == ("v3", "forge", str(bundle))
    assert config.is_insecure and (config.zone, config.region) == ("z", "r")
    assert config.zone_mapping == {SITE: "zone-a"} and config.region_mapping == {SITE: "region-a"}
    assert (config.region_source, config.instance_type_source, config.node_name_match) == ("location", "legacy", "ip")
    assert config.internal_cidrs == (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8"))
    assert config.external_cidrs == (ipaddress.ip_network("198.51.100.0/24"),)
    assert (config.label_prefix, config.labels) == ("example.com/", ("vpc", "nvlink-domain"))


def test_a_misspelt_key_is_told_with_the_one_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as refused:
        load(written(tmp_path, SEED.replace("orgName", "orgname")), {})
    missing, misspelt = refused.value.problems
    assert missing.startswith("orgName: is required")
    assert misspelt.startswith("unknown key orgname") and "orgName" in misspelt


def test_unknown_keys_are_told_and_do_no_harm(tmp_path: Path) -> None:
    text = SEED + "orgname: x\nlabels: {includes: [vpc]}\nwhatever: {a: 1}\n"
    told = oddities(load(written(tmp_path, text), {}))
    assert [line.split(" (")[0] for line in told] == [
        "unknown key orgname",
        "unknown key labels.includes",
        "unknown key whatever",
    ]
    assert "did you mean orgName?" in told[0]


def test_ids_that_are_no_uuids_are_told_and_accepted() -> None:
    told = oddities(load(None, ENVIRON))
    assert any("siteId" in line for line in told) and any("tenantId" in line for line in told)


@pytest.mark.parametrize(
    ("endpoint", "is_told"), [("http://bmm.example.com", True), ("http://127.0.0.1:80", False), ("https://x", False)]
)
def test_a_token_that_would_travel_in_clear_is_told(endpoint: str, is_told: bool) -> None:
    told = oddities(load(None, ENVIRON | {"NVIDIA_BMM_ENDPOINT": endpoint}))
    assert any("https" in line for line in told) is is_told


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    text = (
        SEED.replace("https://api.carbide.nvidia.com", "ftp://x")
        + "regionSource: moon\ninstanceTypeSource: 1\nnodeNameMatch: no\naddressCIDRs: {internal: [10.0.0.0/99]}\n"
        + "labels: {prefix: 'a b/', include: [nothing]}\nzone: 'no zone'\ninsecure: perhaps\napiName: a/b\n"
        + "caFile: /no/such/file\n"
    )
    with pytest.raises(Invalid) as caught:
        load(written(tmp_path, text), {})
    named = " ".join(caught.value.problems)
    for key in (
        "endpoint",
        "regionSource",
        "instanceTypeSource",
        "nodeNameMatch",
        "addressCIDRs.internal",
        "labels.prefix",
        "labels.include",
        "zone",
        "insecure",
        "apiName",
        "caFile",
    ):
        assert key in named


@pytest.mark.parametrize("text", ["a: [", "- 1", "just text", "token: tok-secret-1\ntoken: tok-secret-2"])
def test_a_file_that_is_no_configuration_is_refused_without_quoting_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(Invalid) as caught:
        load(written(tmp_path, text), ENVIRON)
    assert "tok-secret" not in str(caught.value) and caught.value.__cause__ is None


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        load(tmp_path / "missing", ENVIRON)


WITHOUT_TOKEN = {key: value for key, value in ENVIRON.items() if key != "NVIDIA_BMM_TOKEN"}
OIDC = "oidc: {tokenUrl: 'https://id.example.com/token', clientId: me, clientSecret: s3cret-4711, scopes: [a, b]}\n"


def test_no_token_is_needed_with_a_token_file_or_oidc(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    config = load(written(tmp_path, f"tokenFile: {token}\n"), WITHOUT_TOKEN)
    assert config.token.file == token
    config = load(written(tmp_path, OIDC), WITHOUT_TOKEN)
    assert config.token.oidc is not None
    assert (config.token.oidc.client_id, config.token.oidc.scopes) == ("me", ("a", "b"))
    config = load(written(tmp_path, OIDC), WITHOUT_TOKEN | {"NVIDIA_BMM_OIDC_CLIENT_ID": "you"})
    assert config.token.oidc is not None and config.token.oidc.client_id == "you"


def test_what_renews_itself_goes_before_what_does_not_and_the_environment_before_the_file(tmp_path: Path) -> None:
    token, other = tmp_path / "token", tmp_path / "other"
    for one in (token, other):
        one.write_text("t")
    file = written(tmp_path, f"token: in-file\ntokenFile: {token}\n")
    assert load(file, WITHOUT_TOKEN).token.file == token
    assert load(file, ENVIRON).token.value.reveal() == "env-token"
    assert load(file, WITHOUT_TOKEN | {"NVIDIA_BMM_TOKEN_FILE": str(other)}).token.file == other
    assert load(written(tmp_path, "token: in-file\n" + OIDC), WITHOUT_TOKEN).token.oidc is not None


@pytest.mark.parametrize("is_in_environ", [True, False])
def test_a_token_file_that_does_not_exist_is_refused_with_key_and_path(tmp_path: Path, is_in_environ: bool) -> None:
    missing = tmp_path / "missing"
    text = "" if is_in_environ else f"tokenFile: {missing}\n"
    environ = WITHOUT_TOKEN | ({"NVIDIA_BMM_TOKEN_FILE": str(missing)} if is_in_environ else {})
    with pytest.raises(Invalid) as caught:
        load(written(tmp_path, text), environ)
    (problem,) = caught.value.problems
    assert f"tokenFile: {missing} cannot be read: No such file" in problem
    assert "NVIDIA_BMM_TOKEN_FILE" in problem


def test_a_secret_file_of_oidc_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    oidc = f"oidc: {{tokenUrl: 'https://id.example.com/token', clientId: me, clientSecretFile: {tmp_path}/missing}}\n"
    with pytest.raises(Invalid) as caught:
        load(written(tmp_path, oidc), WITHOUT_TOKEN)
    assert "oidc.clientSecretFile" in caught.value.problems[0] and f"{tmp_path}/missing" in caught.value.problems[0]


def test_oidc_needs_a_url_a_client_and_a_secret(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        load(written(tmp_path, "oidc: {scopes: [a]}\n"), WITHOUT_TOKEN)
    assert len(caught.value.problems) == 3


def test_a_configuration_shows_no_secret(tmp_path: Path) -> None:
    for config in (load(written(tmp_path, OIDC), WITHOUT_TOKEN), load(None, ENVIRON)):
        assert "s3cret" not in repr(config) and "env-token" not in repr(config)
