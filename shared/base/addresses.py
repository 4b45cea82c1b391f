"""Addresses of hosts: whether a text is one, and whether it is surely this machine."""

from __future__ import annotations

import ipaddress


def is_address(text: str) -> bool:
    """Return whether a text is an IPv4 or IPv6 address, without brackets."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether a host is surely this machine, as its name or address says: 127.0.0.0/8, ::1, `localhost`, also
    with a dot at its end. Any other name may lead anywhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
