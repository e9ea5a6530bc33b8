"""The configuration of `nvidia-bmm`: a YAML file, overridden by the environment.

In: the file given to `--cloud-config` (or none) and the environment. Out: a `Config`, with warnings about what is odd
but not wrong; every problem is reported at once, each with the key and the variable that fix it. The five keys of the
original are required (the token unless it comes from elsewhere); everything else is optional. Secrets are `Secret`s.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from bedplate.api import names
from bedplate.cloud.http.client import endpoint_problem
from bedplate.cloud.http.secrets import Secret
from bedplate.cloud.http.tokens import file_problem
from bedplate.cloud.providers.nvidia_bmm.providerid import is_uuid
from bedplate.cloud.providers.nvidia_bmm.settings import Reader, variable
from bedplate.core import errors, yamls
from bedplate.kube.proxies import is_bypassed

__all__ = ["LABELS", "Config", "Network", "Oidc", "TokenFrom", "load", "oddities"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
PREFIX = "nvidia-bmm.nvidia.com/"
LABELS = ("vpc", "machine-id", "tenant-labels", "nvlink-domain", "infiniband", "vendor", "product-name")
"""What `labels.include` may name; `vendor` and `product-name` cost one call per machine."""


@dataclass(frozen=True, slots=True)
class Oidc:
    """Where tokens are fetched, and as whom."""

    token_url: str
    client_id: str
    client_secret: Secret
    client_secret_file: Path | None
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TokenFrom:
    """Exactly one of these is set: a value, a file, a key `token` of the configuration file, or OIDC."""

    value: Secret = field(default_factory=lambda: Secret(""))
    file: Path | None = None
    config_file: Path | None = None
    oidc: Oidc | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """A whole and usable configuration."""

    endpoint: str
    org: str
    site_id: str
    tenant_id: str
    token: TokenFrom
    api_version: str = "v2"
    api_name: str = "carbide"
    ca_file: str = ""
    is_insecure: bool = False
    zone: str = ""
    region: str = ""
    zone_mapping: Mapping[str, str] = field(default_factory=dict)
    region_mapping: Mapping[str, str] = field(default_factory=dict)
    region_source: str = "legacy"
    instance_type_source: str = "name"
    internal_cidrs: tuple[Network, ...] = ()
    external_cidrs: tuple[Network, ...] = ()
    node_name_match: str = "instance-name"
    label_prefix: str = PREFIX
    labels: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def load(file: Path | None, environ: Mapping[str, str]) -> Config:
    """Read and check everything; raises `Invalid` with every problem found."""
    reader = Reader(_content(file), environ)
    config = _read(reader, file)
    _check(config, reader)
    if reader.problems:
        raise errors.Invalid(
            "the configuration of nvidia-bmm is not usable",
            # A key that is missing may be there misspelt.
            problems=[*reader.problems, *config.warnings],
            hint="set the keys in the file given to --cloud-config, or the environment variables named",
        )
    return config


def _content(file: Path | None) -> Mapping[str, Any]:
    if file is None:
        return {}
    try:
        content = yamls.load(file.read_text(encoding="utf-8"), strict=True)
    except OSError as err:
        raise errors.Invalid(f"the cloud configuration {file} cannot be read: {err.strerror}") from None
    except UnicodeDecodeError:
        raise errors.Invalid(f"the cloud configuration {file} is not text") from None
    except yaml.YAMLError as err:
        # The error's own text quotes the file, which holds the token.
        mark = getattr(err, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise errors.Invalid(f"the cloud configuration {file} is not YAML{where}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise errors.Invalid(f"the cloud configuration {file} must be a mapping of settings")
    return content


def _read(reader: Reader, file: Path | None) -> Config:
    return Config(
        endpoint=reader.required("endpoint").rstrip("/"),
        org=reader.required("orgName"),
        site_id=reader.required("siteId"),
        tenant_id=reader.required("tenantId"),
        token=_token(reader, file),
        api_version=reader.text("apiVersion", "v2"),
        api_name=reader.text("apiName", "carbide"),
        ca_file=reader.text("caFile"),
        is_insecure=reader.flag("insecure"),
        zone=reader.text("zone"),
        region=reader.text("region"),
        zone_mapping=reader.mapping("zoneMapping"),
        region_mapping=reader.mapping("regionMapping"),
        region_source=reader.choice("regionSource", ("legacy", "location")),
        instance_type_source=reader.choice("instanceTypeSource", ("name", "legacy")),
        internal_cidrs=_networks(reader, "addressCIDRs.internal"),
        external_cidrs=_networks(reader, "addressCIDRs.external"),
        node_name_match=reader.choice("nodeNameMatch", ("instance-name", "ip", "none")),
        label_prefix=reader.text("labels.prefix", PREFIX),
        labels=reader.names("labels.include", LABELS),
        warnings=tuple(reader.warnings()),
    )


def _token(reader: Reader, file: Path | None) -> TokenFrom:
    """Where the token comes from: the environment before the file, and what renews itself before what does not."""
    oidc = _oidc(reader)
    value, path = reader.from_environ("token"), reader.from_environ("tokenFile")
    in_file, file_path = reader.from_file("token"), reader.from_file("tokenFile")
    if value:
        return TokenFrom(value=Secret(value))
    if path:
        return TokenFrom(file=Path(path))
    if oidc is not None:
        return TokenFrom(oidc=oidc)
    if file_path:
        return TokenFrom(file=Path(file_path))
    if in_file:
        return TokenFrom(config_file=file)
    reader.problems.append("token: is required (environment NVIDIA_BMM_TOKEN), or one of tokenFile and oidc")
    return TokenFrom()


def _oidc(reader: Reader) -> Oidc | None:
    url, client = reader.text("oidc.tokenUrl"), reader.text("oidc.clientId")
    secret, secret_file = reader.text("oidc.clientSecret"), reader.text("oidc.clientSecretFile")
    scopes = reader.words("oidc.scopes")
    if not (url or client or secret or secret_file or scopes):
        return None
    if problem := endpoint_problem(url):
        reader.problems.append(f"oidc.tokenUrl: {problem} (environment NVIDIA_BMM_OIDC_TOKEN_URL)")
    if not client:
        reader.problems.append("oidc.clientId: is required (environment NVIDIA_BMM_OIDC_CLIENT_ID)")
    if not secret and not secret_file:
        reader.problems.append("oidc.clientSecret or oidc.clientSecretFile: is required")
    return Oidc(url, client, Secret(secret), Path(secret_file) if secret_file else None, scopes)


def _networks(reader: Reader, key: str) -> tuple[Network, ...]:
    networks = []
    for text in reader.words(key):
        try:
            networks.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            reader.problems.append(f"{key}: {text!r} must be a network in CIDR notation")
    return tuple(networks)


def _check(config: Config, reader: Reader) -> None:
    problems = reader.problems
    if config.endpoint and (problem := endpoint_problem(config.endpoint)):
        problems.append(f"endpoint: {problem} (environment NVIDIA_BMM_ENDPOINT)")
    oidc_file = config.token.oidc.client_secret_file if config.token.oidc is not None else None
    for key, path in (("tokenFile", config.token.file), ("oidc.clientSecretFile", oidc_file)):
        if path is not None and (problem := file_problem(key, path)):
            problems.append(f"{problem} (environment {variable(key)})")
    if config.ca_file and not Path(config.ca_file).is_file():
        problems.append(f"caFile: there is no file {config.ca_file}")
    # These become segments of paths and of provider IDs.
    segments = {"orgName": config.org, "siteId": config.site_id, "tenantId": config.tenant_id}
    segments |= {"apiVersion": config.api_version, "apiName": config.api_name}
    for key, value in segments.items():
        if value and ("/" in value or not value.strip(".") or any(char.isspace() for char in value)):
            problems.append(f"{key}: must not hold a slash or blank, nor be dots alone")
    zones = {"zone": config.zone, "region": config.region}
    zones |= {f"zoneMapping.{site}": name for site, name in config.zone_mapping.items()}
    zones |= {f"regionMapping.{site}": name for site, name in config.region_mapping.items()}
    for key, value in zones.items():
        problems.extend(f"{key}: {problem}" for problem in names.label_value_problems(value))
    problems.extend(f"labels.prefix: {problem}" for problem in names.label_key_problems(f"{config.label_prefix}x"))


def oddities(config: Config) -> list[str]:
    """What is not wrong, but probably not meant."""
    warnings = list(config.warnings)
    for key, value in (("siteId", config.site_id), ("tenantId", config.tenant_id)):
        if not is_uuid(value):
            warnings.append(f"{key} is not a UUID, as the IDs of BMM are")
    if config.is_insecure:
        warnings.append("insecure is set: the server's certificate is not verified")
    if config.endpoint.startswith("http://") and not is_bypassed(urlsplit(config.endpoint).hostname or "", 80, ""):
        warnings.append("the endpoint is not https: the token is sent unencrypted")
    return warnings
