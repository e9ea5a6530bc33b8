"""Which proxy leads to a server."""

from __future__ import annotations

import pytest

from bedplate.core import errors
from bedplate.kube import proxies


def test_the_kubeconfigs_proxy_wins_over_the_environment_and_over_no_proxy() -> None:
    environ = {"HTTPS_PROXY": "http://env:1", "NO_PROXY": "*"}
    assert proxies.choose("https://a:6443", "http://cfg:2", environ) == "http://cfg:2"


def test_the_environments_proxy_follows_the_scheme_in_either_case() -> None:
    environ = {"https_proxy": "secure:1", "HTTP_PROXY": "http://plain:2"}
    assert proxies.choose("https://a", "", environ) == "http://secure:1"
    assert proxies.choose("http://a", "", environ) == "http://plain:2"
    assert proxies.choose("https://a", "", {}) == ""


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "ftp"])
def test_other_kinds_of_proxy_are_refused_clearly(scheme: str) -> None:
    with pytest.raises(errors.Invalid, match=scheme):
        proxies.choose("https://a", "", {"HTTPS_PROXY": f"{scheme}://p:1"})


@pytest.mark.parametrize(
    ("host", "port", "no_proxy", "expected"),
    [
        ("localhost", 443, "", True),
        ("127.0.0.7", 443, "", True),
        ("::1", 443, "", True),
        ("a.example.com", 443, "", False),
        ("a.example.com", 443, "*", True),
        ("a.example.com", 443, "example.com", True),
        ("example.com", 443, "example.com", True),
        ("example.com", 443, ".example.com", False),
        ("a.example.com", 443, ".example.com", True),
        ("a.example.com", 443, "*.example.com", True),
        ("notexample.com", 443, "example.com", False),
        ("A.Example.COM", 443, " other , example.com ", True),
        ("a.example.com", 6443, "example.com:6443", True),
        ("a.example.com", 443, "example.com:6443", False),
        ("10.1.2.3", 443, "10.0.0.0/8", True),
        ("11.1.2.3", 443, "10.0.0.0/8", False),
        ("10.1.2.3", 443, "10.1.2.3", True),
        ("10.1.2.3", 443, "10.1.2.3:443", True),
        ("10.1.2.3", 443, "10.1.2.3:80", False),
        ("fd00::1", 443, "fd00::/8", True),
        ("fd00::1", 443, "fd00::1", True),
        ("a.example.com", 443, "10.0.0.0/8,nonsense/x", False),
    ],
)
def test_no_proxy_is_read_as_go_reads_it(host: str, port: int, no_proxy: str, expected: bool) -> None:
    assert proxies.is_bypassed(host, port, no_proxy) is expected
