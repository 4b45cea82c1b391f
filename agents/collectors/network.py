"""The hardware addresses by which this host may be woken."""

from __future__ import annotations

import re
from pathlib import Path

ADDRESSES_MAX = 16
ADDRESS = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


def mac_addresses(root: str = "/sys/class/net") -> tuple[str, ...]:
    """Return the MAC addresses of the physical network cards, without bridges and other virtual interfaces. Cards set
    to wake the host come first. A card in a bond is listed with its own address. Empty if the system does not report
    them."""
    found: dict[str, tuple[bool, str]] = {}
    try:
        interfaces = sorted(Path(root).iterdir())
    except OSError:
        return ()
    for interface in interfaces:
        if not (interface / "device").exists():
            continue  # made by software
        address = (_read(interface / "bonding_slave/perm_hwaddr") or _read(interface / "address")).lower()
        if ADDRESS.fullmatch(address) and _is_one_card(address):
            asleep = _read(interface / "device/power/wakeup") != "enabled"
            found.setdefault(address, (asleep, interface.name))
    return tuple(sorted(found, key=found.__getitem__)[:ADDRESSES_MAX])


def _is_one_card(address: str) -> bool:
    """Return whether the address belongs to a single card: neither a group address nor all zeros."""
    return not int(address[:2], 16) & 1 and address != "00:00:00:00:00:00"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
