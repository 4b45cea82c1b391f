"""What the portal's configuration must hold beyond the form of its keys, and what its public URL says."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from daemons.config.portal import PortalConfig
from shared.base.addresses import is_loopback
from shared.base.errors import Problem
from shared.runtime.server_tls import file_problems

LOCAL = ("localhost", "127.0.0.1", "[::1]")


def host_of(url: str) -> str:
    """Return the host of a public URL as browsers send it in `Host`: with the port unless it is the default."""
    parts = urlsplit(url)
    usual = {"https": 443, "http": 80}[parts.scheme]
    name = (parts.hostname or "").lower()
    name = f"[{name}]" if ":" in name else name
    return name if parts.port in (None, usual) else f"{name}:{parts.port}"


def origin_of(url: str) -> str:
    """Return the origin of a public URL as browsers send it."""
    return f"{urlsplit(url).scheme}://{host_of(url)}"


def is_local(url: str) -> bool:
    """Return whether only browsers of this machine reach a URL."""
    return host_of(url).rsplit(":", 1)[0] in LOCAL or host_of(url) in LOCAL


def problems_of(config: PortalConfig) -> list[Problem]:
    """Return the problems that no single key shows: see docs/reference/portal-config.md."""
    wrong: list[Problem] = []
    https = config.public_url.startswith("https://")
    has_tls = bool(config.tls.cert_file)
    if not https and not is_local(config.public_url):
        wrong.append(Problem("public_url", "is not encrypted", "https://..., or a URL of this machine alone"))
    if https and not has_tls and not config.proxy.trusted and not is_local(config.public_url):
        what = "is https, but there is neither a certificate nor a proxy"
        wrong.append(Problem("public_url", what, "tls.cert_file and tls.key_file, or proxy.trusted"))
    if not has_tls and not config.proxy.trusted and not is_loopback(config.server.address):
        what = f"is {config.server.address}, which others reach, and nothing is encrypted"
        expected = "an address of this machine alone, tls.cert_file and tls.key_file, or proxy.trusted"
        wrong.append(Problem("server.address", what, expected))
    if config.proxy.sign_on_file and not config.proxy.trusted:
        wrong.append(Problem("proxy.sign_on_file", "is given, but no proxy is trusted", "proxy.trusted"))
    for each in config.proxy.trusted:
        try:
            ipaddress.ip_network(each, strict=False)
        except ValueError:
            wrong.append(Problem("proxy.trusted", f"is {each!r}", "IP addresses or networks"))
    return wrong + file_problems("tls", "cert_file", config.tls.cert_file, config.tls.key_file)
