"""A request to the helper: one line of JSON, bounded, strict."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass
from typing import Any

from agents.helper.errors import Refusal

REQUEST_BYTES_MAX = 65_536
REQUEST_LIMIT_S = 5.0
PACKAGES_MAX = 100
LIMIT_S_MAX = 3_600.0
NAME = re.compile(r"[a-z0-9][a-z0-9+.-]{1,127}")
VERSION = re.compile(r"([A-Za-z0-9.+:~-]{1,128})?")
DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PackageRequest:
    """A package to install; version "": any that the sources have. sha256: digest of its file."""

    name: str
    version: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Request:
    """The packages to install, and the time limit in seconds."""

    install: tuple[PackageRequest, ...]
    limit_s: float


def too_late(limit_s: float) -> Refusal:
    """Return the answer for a request that has not arrived."""
    return Refusal(f"no request within {limit_s:g} s")


def received(channel: socket.socket, limit_s: float = REQUEST_LIMIT_S) -> bytes:
    """Return the line that was received. Raises Refusal when it is too long, too late or not terminated."""
    channel.settimeout(limit_s)
    line = b""
    while not line.endswith(b"\n"):
        try:
            some = channel.recv(REQUEST_BYTES_MAX)
        except TimeoutError as error:
            raise too_late(limit_s) from error
        line += some
        if len(line) > REQUEST_BYTES_MAX:
            raise Refusal(f"the request has more than {REQUEST_BYTES_MAX} bytes")
        if not some:
            raise Refusal("the request is not ended by a line feed")
    return line


def parsed(line: bytes) -> Request:
    """Parse the request in a line. Raises Refusal."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Refusal("the request is not JSON") from error
    if not isinstance(said, dict) or set(said) != {"install", "limit_s"}:
        raise Refusal('the request is not {"install": [...], "limit_s": ...}')
    limit_s, install = said["limit_s"], said["install"]
    if type(limit_s) not in (int, float) or not limit_s > 0.0:
        raise Refusal("limit_s is no number above 0")
    if not isinstance(install, list) or not 0 < len(install) <= PACKAGES_MAX:
        raise Refusal(f"install is no list of 1 to {PACKAGES_MAX} packages")
    wanted = tuple(_wanted(entry) for entry in install)
    if len({package.name for package in wanted}) < len(wanted):
        raise Refusal("a package is named twice")
    return Request(wanted, min(limit_s, LIMIT_S_MAX))


def _wanted(entry: Any) -> PackageRequest:
    if not isinstance(entry, dict) or set(entry) != {"name", "version", "sha256"}:
        raise Refusal('a package is not {"name": ..., "version": ..., "sha256": ...}')
    for key, form in (("name", NAME), ("version", VERSION), ("sha256", DIGEST)):
        if not isinstance(entry[key], str) or not form.fullmatch(entry[key]):
            raise Refusal(f"{key} of a package is not valid")
    return PackageRequest(entry["name"], entry["version"], entry["sha256"])
