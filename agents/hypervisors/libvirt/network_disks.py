"""Network disks as texts: where a disk or a storage pool is, and which servers of the configuration are to be tried.

"rbd:vms@mon1,mon2:3300": what has a name is told from its like in another cluster by its servers, as a set.
"nbd:store1:10809": what has none is its server. Ports that say nothing new are left out of the former.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree as ET

from agents.hypervisors.libvirt.machine import Machine
from shared.values.migration import NAMED_PORTS

PORTS = {"ftp": 21, "ftps": 990, "http": 80, "https": 443, "nbd": 10_809, "nfs": 2_049, "sheepdog": 7_000, "ssh": 22}
"""Of the other protocols, the port of a server that names none."""
_SERVER = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]]+)):(\d{1,5})")
Server = tuple[str, int]


def source_of(protocol: str, name: str, hosts: Iterable[ET.Element]) -> str:
    """Return where a disk or a pool is. `hosts`: the `<host>` elements of its source; `name`: its pool of Ceph's, its
    volume of Gluster's or its target of iSCSI's, else what stands for a server that is not named."""
    servers = [(host.get("name", ""), host.get("port", ""), host.get("socket", "")) for host in hosts]
    if protocol in NAMED_PORTS:
        return _named(protocol, name, (socket or _server(host, port) for host, port, socket in servers))
    for host, port, socket in servers[:1]:
        number = port or str(PORTS.get(protocol, ""))
        if socket or not number:
            return f"{protocol}:{socket or host or name}"
        return f"{protocol}:{_server(host, number)}"
    return f"{protocol}:{name}"


def _named(protocol: str, name: str, servers: Iterable[str]) -> str:
    usual = f":{NAMED_PORTS[protocol]}"
    found = sorted({server.removesuffix(usual).lower() for server in servers} - {""})
    return f"{protocol}:{name}@{','.join(found)}" if found else f"{protocol}:{name}"


def _server(host: str, port: str) -> str:
    bracketed = f"[{host}]" if ":" in host else host
    return f"{bracketed}:{port}" if port else bracketed


class ConfiguredStorage:
    """The places of `libvirt.reachable_storage`. Those with servers are there while one of these takes a connection;
    until it was tried, none is. The others are there since the operator says so."""

    def __init__(self, places: Iterable[str], machine: Machine) -> None:
        self._machine = machine
        found = {place: _servers_of(place) for place in places}
        self._plain = tuple(place for place, servers in found.items() if not servers)
        self._tried = {_canonical(place): servers for place, servers in found.items() if servers}
        self._reached: tuple[str, ...] = ()

    @property
    def is_tried(self) -> bool:
        """Whether any place has servers."""
        return bool(self._tried)

    @property
    def there(self) -> tuple[str, ...]:
        """The places that are there, as far as is known."""
        return (*self._plain, *self._reached)

    def look(self) -> bool:
        """Try the servers, one after the other; return whether anything has changed. Takes seconds for each that does
        not answer."""
        connects = self._machine.connects
        found = tuple(place for place, servers in self._tried.items() if any(connects(*one) for one in servers))
        changed, self._reached = found != self._reached, found
        return changed


def _servers_of(place: str) -> tuple[Server, ...]:
    """Return the servers that a place of the configuration names with a port, or, after "@", without."""
    protocol, _, rest = place.partition(":")
    if place.startswith("/"):
        return ()
    if protocol not in NAMED_PORTS:
        found = _SERVER.fullmatch(rest)
        return ((found[1] or found[2], int(found[3])),) if found else ()
    texts = [text for text in rest.partition("@")[2].split(",") if text]
    return tuple(_with_port(text, NAMED_PORTS[protocol]) for text in texts)


def _with_port(text: str, usual: int) -> Server:
    found = _SERVER.fullmatch(text)
    if found:
        return found[1] or found[2], int(found[3])
    return text.removeprefix("[").removesuffix("]"), usual


def _canonical(place: str) -> str:
    """Return a place with servers as the disks that are there are named."""
    protocol, _, rest = place.partition(":")
    if protocol not in NAMED_PORTS:
        return place
    name, _, servers = rest.partition("@")
    return _named(protocol, name, servers.split(","))
