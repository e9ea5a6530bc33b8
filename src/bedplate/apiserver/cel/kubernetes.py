"""The functions that Kubernetes adds to CEL: quantities, addresses, networks, URLs, formats, semantic versions.

In: values. Out: values, or `CelError` in the server's words. The authorizer is left out.
"""

from __future__ import annotations

import decimal
import ipaddress
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bedplate.apiserver.cel.signatures import Registry
from bedplate.apiserver.cel.values import NO_OVERLOAD, NONE, CelError, Cidr, Optional, Quantity, Semver, Url
from bedplate.apiserver.schema import formats, gotext

__all__ = ["install"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _holds(parse: Callable[[Any], Any]) -> Callable[[Any], bool]:
    """A predicate: whether `parse` succeeds."""

    def check(*args: Any) -> bool:
        try:
            parse(*args)
        except CelError:
            return False
        return True

    return check


def _quantity(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except ValueError as error:
        raise CelError(str(error)) from None


def _as_integer(value: Quantity) -> int:
    number = int(value.number)
    if value.is_inexact or number != value.number or not -(2**63) <= number < 2**63:
        raise CelError("cannot convert value to integer")
    return number


def _shift(value: Quantity, other: Quantity | int, sign: int) -> Quantity:
    number = other.number if isinstance(other, Quantity) else decimal.Decimal(other)
    with decimal.localcontext(decimal.Context(prec=100)):
        return Quantity(value.number + sign * number)


def _order(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _quantities(registry: Registry) -> None:
    add = registry.declare
    add("quantity", "(string) quantity", _quantity)
    add("isQuantity", "(string) bool", _holds(_quantity))
    add("sign", "(quantity) int", lambda value: (value.number > 0) - (value.number < 0))
    add("asApproximateFloat", "quantity.() double", lambda value: float(value.number))
    add("asInteger", "quantity.() int", _as_integer)
    add("isInteger", "quantity.() bool", _holds(_as_integer))
    for other in ("quantity", "int"):
        add("add", f"quantity.({other}) quantity", lambda value, more: _shift(value, more, 1))
        add("sub", f"quantity.({other}) quantity", lambda value, less: _shift(value, less, -1))
    for kind in ("quantity", "semver"):
        add("isGreaterThan", f"{kind}.({kind}) bool", lambda left, right: left > right)
        add("isLessThan", f"{kind}.({kind}) bool", lambda left, right: left < right)
        add("compareTo", f"{kind}.({kind}) int", _order)


def _semver(text: str, normalize: bool = False) -> Semver:
    try:
        return Semver.parse(Semver.normalize(text) if normalize else text)
    except ValueError as error:
        raise CelError(str(error)) from None


def _semvers(registry: Registry) -> None:
    add = registry.declare
    for args in ("(string)", "(string, bool)"):
        add("semver", f"{args} semver", _semver)
        add("isSemver", f"{args} bool", _holds(_semver))
    add("major", "semver.() int", lambda value: value.major)
    add("minor", "semver.() int", lambda value: value.minor)
    add("patch", "semver.() int", lambda value: value.patch)


def _address(text: str) -> Address:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        fault = f"ParseAddr({gotext.quote(text)}): {_address_fault(text)}"
        raise CelError(f"IP Address {gotext.quote(text)} parse error during conversion from string: {fault}") from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id:
            raise CelError(f"IP address {gotext.quote(text)} with zone value is not allowed")
        if address.ipv4_mapped is not None:
            raise CelError(f"IPv4-mapped IPv6 address {gotext.quote(text)} is not allowed")
    return address


def _address_fault(text: str) -> str:
    if "." not in text and ":" not in text:
        return "unable to parse IP"
    if ":" not in text:
        parts = text.split(".")
        if any(part.isdigit() and len(part) > 1 and part[0] == "0" for part in parts):
            return "IPv4 field has octet with leading zero"
        if any(part.isdigit() and int(part) > 255 for part in parts):
            return "IPv4 field has value >255"
        if all(part.isdigit() for part in parts):
            return "IPv4 address too short" if len(parts) < 4 else "IPv4 address too long"
        at = next(index for index, letter in enumerate(text) if letter not in "0123456789.")
        return f"unexpected character (at {gotext.quote(text[at:])})"
    return "unable to parse IP"


def _is_global_unicast(value: Address) -> bool:
    if isinstance(value, ipaddress.IPv4Address) and value == ipaddress.IPv4Address("255.255.255.255"):
        return False
    return not (value.is_unspecified or value.is_loopback or value.is_multicast or value.is_link_local)


def _is_link_local_multicast(value: Address) -> bool:
    if isinstance(value, ipaddress.IPv4Address):
        return value in ipaddress.IPv4Network("224.0.0.0/24")
    return (int(value) >> 112) & 0xFF0F == 0xFF02


def _addresses(registry: Registry) -> None:
    add = registry.declare
    add("ip", "(string) ip", _address)
    add("isIP", "(string) bool", _holds(_address))
    add("ip.isCanonical", "(string) bool", lambda text: str(_address(text)) == text)
    add("family", "ip.() int", lambda value: value.version)
    add("isUnspecified", "ip.() bool", lambda value: value.is_unspecified)
    add("isLoopback", "ip.() bool", lambda value: value.is_loopback)
    add("isLinkLocalMulticast", "ip.() bool", _is_link_local_multicast)
    add("isLinkLocalUnicast", "ip.() bool", lambda value: value.is_link_local)
    add("isGlobalUnicast", "ip.() bool", _is_global_unicast)


def _network(text: str) -> Cidr:
    address, mark, bits = text.rpartition("/")
    fault = ""
    if not mark:
        fault = "no '/'"
    elif not bits.isdigit() or (len(bits) > 1 and bits[0] == "0"):
        fault = f"bad bits after slash: {gotext.quote(bits)}"
    else:
        try:
            ip = ipaddress.ip_address(address)
        except ValueError:
            fault = f"ParseAddr({gotext.quote(address)}): {_address_fault(address)}"
        else:
            if int(bits) > ip.max_prefixlen:
                fault = "prefix length out of range"
            elif isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
                raise CelError(f"IPv4-mapped IPv6 address {gotext.quote(text)} is not allowed")
            else:
                return Cidr(ip, int(bits))
    where = f"netip.ParsePrefix({gotext.quote(text)}): {fault}"
    what = "network address parse error during conversion from string"
    raise CelError(f"{what}: {what}: {where}")


def _contains_ip(net: Cidr, value: Address | str) -> bool:
    if not isinstance(value, str):
        return value in net.network
    try:
        return _address(value) in net.network
    except CelError:
        # A text that is not an address is to the server an argument of the wrong kind.
        raise CelError(NO_OVERLOAD) from None


def _contains_cidr(net: Cidr, value: Cidr | str) -> bool:
    other = _network(value) if isinstance(value, str) else value
    return other.prefix >= net.prefix and other.network.network_address in net.network


def _networks(registry: Registry) -> None:
    add = registry.declare
    add("cidr", "(string) cidr", _network)
    add("isCIDR", "(string) bool", _holds(_network))
    add("ip", "cidr.() ip", lambda net: net.address)
    add("prefixLength", "cidr.() int", lambda net: net.prefix)
    add("masked", "cidr.() cidr", lambda net: Cidr(net.network.network_address, net.prefix))
    for kind in ("string", "ip"):
        add("containsIP", f"cidr.({kind}) bool", _contains_ip)
    for kind in ("string", "cidr"):
        add("containsCIDR", f"cidr.({kind}) bool", _contains_cidr)


def _url(text: str) -> Url:
    fault = _url_fault(text)
    if fault:
        raise CelError(f"URL parse error during conversion from string: parse {gotext.quote(text)}: {fault}")
    return Url(text, urllib.parse.urlsplit(text))


def _url_fault(text: str) -> str:
    if not text:
        return "empty url"
    if any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in text):
        return "net/url: invalid control character in URL"
    try:
        parts = urllib.parse.urlsplit(text)
        _ = parts.port
    except ValueError:
        host = urllib.parse.urlsplit("//x").netloc
        _, _, port = text.rpartition(":")
        return f"invalid port {gotext.quote(':' + port.split('/')[0])} after host" if host else "invalid URL"
    if not parts.scheme and not text.startswith("/"):
        return "invalid URI for request"
    if " " in parts.netloc:
        return 'invalid character " " in host name'
    return ""


def _urls(registry: Registry) -> None:
    add = registry.declare
    add("url", "(string) url", _url)
    add("isURL", "(string) bool", _holds(_url))
    add("getScheme", "url.() string", lambda value: value.parts.scheme)
    add("getHost", "url.() string", lambda value: value.parts.netloc.rpartition("@")[2])
    add("getHostname", "url.() string", _hostname)
    add("getPort", "url.() string", lambda value: str(value.parts.port or ""))
    add("getEscapedPath", "url.() string", _escaped_path)
    add("getQuery", "url.() map(string, list(string))", _query)


def _hostname(value: Url) -> str:
    host = value.parts.netloc.rpartition("@")[2]
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _escaped_path(value: Url) -> str:
    return urllib.parse.quote(value.parts.path, safe="/%:@!$&'()*+,;=~-._")


def _query(value: Url) -> dict[str, list[str]]:
    return urllib.parse.parse_qs(value.parts.query, keep_blank_values=True)


@dataclass(frozen=True, slots=True, eq=False)
class NamedFormat:
    name: str
    check: Callable[[str], list[str]]


def _prefix(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Checks a name that more is appended to, so it may end with a dash."""
    return lambda text: check(text[:-1] + "a" if len(text) > 1 and text.endswith("-") else text)


def _by(name: str, fault: str) -> Callable[[str], list[str]]:
    check = formats.CHECKS[name]
    return lambda text: [] if check(text) else [fault]


def _uri_faults(text: str) -> list[str]:
    fault = _url_fault(text)
    return [f"parse {gotext.quote(text)}: {fault}"] if fault else []


_FORMATS = {
    "dns1123Label": formats.dns1123_label,
    "dns1123Subdomain": formats.dns1123_subdomain,
    "dns1035Label": formats.dns1035_label,
    "qualifiedName": formats.qualified_name,
    "dns1123LabelPrefix": _prefix(formats.dns1123_label),
    "dns1123SubdomainPrefix": _prefix(formats.dns1123_subdomain),
    "dns1035LabelPrefix": _prefix(formats.dns1035_label),
    "labelValue": formats.label_value,
    "uri": _uri_faults,
    "uuid": _by("uuid", "does not match the UUID format"),
    "byte": _by("byte", "invalid base64"),
    "date": _by("date", "invalid date"),
    "datetime": _by("datetime", "invalid datetime"),
}


def _validate(form: NamedFormat, text: str) -> Optional:
    faults = form.check(text)
    return Optional(faults) if faults else NONE


def _named_formats(registry: Registry) -> None:
    named = {name: NamedFormat(name, check) for name, check in _FORMATS.items()}
    for name, form in named.items():
        registry.declare(f"format.{name}", "() format", lambda form=form: form)
    registry.declare(
        "format.named", "(string) optional(format)", lambda name: Optional(named[name]) if name in named else NONE
    )
    registry.declare("validate", "format.(string) optional(list(string))", _validate)


def install(registry: Registry) -> None:
    """Declare everything of this module."""
    for part in (_quantities, _semvers, _addresses, _networks, _urls, _named_formats):
        part(registry)
