"""Probes instances on this host: a request over HTTP, a connection, or a program that the configuration names. Each
blocks its thread, for no longer than its limit.

HTTP is spoken over the socket, not by `shared.base.http_client`: a probe judges the head of an answer alone, and
`http.client` passes over 100 and takes the end of a connection for the end of a head. The deadline is the shared one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from io import BufferedReader

from shared.base.addresses import is_address
from shared.base.deadline import Deadline, connected, received, send_all
from shared.base.errors import InvalidInput, Problem, TransientError
from shared.config.agent import HealthCheckKeys
from shared.ports.effects import Probed
from shared.runtime import subprocesses
from shared.values.health import NO_ADDRESS, UNKNOWN_COMMAND, Probe, ProbeKind, Target

HEAD_BYTES_MAX = 65_536  # of an answer: what comes after its head is not read
READ_BYTES = 4_096
INHERITED = ("HOME", "LANG", "LC_ALL", "PATH", "TZ")
STATUS_PARTS = 2  # of the first line of an answer, at least: version and status
GOOD_STATUS = range(200, 400)


class _CannotTell(Exception):
    """A probe could not be made, which is not the instance's fault."""


class Monitor:
    """Finds out whether an instance serves. Raises InvalidInput for a command without a program."""

    def __init__(self, keys: HealthCheckKeys) -> None:
        self._commands = keys.commands
        empty = [name for name, command in keys.commands.items() if not command.run]
        if empty:
            places = [f"health_checks.commands.{name}.run" for name in empty]
            raise InvalidInput(*(Problem(where, "is empty", "a program and its arguments") for where in places))
        self._probes: Mapping[ProbeKind, Callable[[Target, str], str]] = {
            ProbeKind.HTTP: _http,
            ProbeKind.TCP: _tcp,
            ProbeKind.COMMAND: self._command,
        }

    def probe(self, target: Target, address: str) -> Probed:
        """Probe an instance once at an IP address. What cannot be found out, for want of an address or of a command of
        that name that can be run, is `ok` with the reason. Raises nothing."""
        probe = target.probe
        unknown = _unknown(probe, self._commands)
        if unknown or not is_address(address):
            return Probed(target.vm, target.generation, True, unknown or NO_ADDRESS)
        try:
            why = self._probes[probe.kind](target, address)
        except _CannotTell as error:
            return Probed(target.vm, target.generation, True, str(error))
        except TimeoutError:
            why = f"no answer within {probe.limit_s:g} s"
        except OSError as error:
            why = (error.strerror or str(error)).lower()
        return Probed(target.vm, target.generation, not why, why)

    def _command(self, target: Target, address: str) -> str:
        """Run the program; returns why the instance does not serve ("": it does)."""
        probe = target.probe
        command = self._commands[probe.command]
        variables = {name: os.environ[name] for name in INHERITED if name in os.environ}
        variables |= {"TRIMTAB_VM": target.vm, "TRIMTAB_ADDRESS": address, "TRIMTAB_PORT": str(probe.port)}
        try:
            ended = subprocesses.run(command.run, min(probe.limit_s, command.limit_s), variables)
        except TransientError as error:
            raise _CannotTell(f"{UNKNOWN_COMMAND} {probe.command!r}: {error}") from error
        return "" if ended.ok else f"{probe.command}: {ended.detail}"


def _tcp(target: Target, address: str) -> str:
    with connected(address, target.probe.port, Deadline(target.probe.limit_s)):
        return ""


def _http(target: Target, address: str) -> str:
    """Ask for the path; a redirect is an answer and is not followed."""
    probe, deadline = target.probe, Deadline(target.probe.limit_s)
    with connected(address, probe.port, deadline) as connection:
        send_all(connection, _request(probe, address), deadline)
        return _told(_head(received(connection, deadline)))


def _request(probe: Probe, address: str) -> bytes:
    host = f"[{address}]" if ":" in address else address
    lines = (
        f"GET {probe.path} HTTP/1.1",
        f"Host: {host}:{probe.port}",
        "User-Agent: trimtab",
        "Accept: */*",
        "Connection: close",
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def _head(answer: BufferedReader) -> bytes:
    """Read the head of an answer, or as much of it as there is or may be. Raises TimeoutError when it takes too
    long."""
    said = b""
    while b"\r\n\r\n" not in said and len(said) < HEAD_BYTES_MAX and (some := answer.read1(READ_BYTES)):
        said += some
    return said


def _told(head: bytes) -> str:
    """Return why an answer is not a good one ("": it is)."""
    if not head:
        return "the connection was closed without an answer"
    words = head.split(b"\r\n", 1)[0].split()
    if len(words) < STATUS_PARTS or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        return "the answer is not HTTP"
    if b"\r\n\r\n" not in head:
        return "the head of the answer has no end"
    status = int(words[1][:4])
    return "" if status in GOOD_STATUS else f"HTTP {status}"


def _unknown(probe: Probe, commands: Mapping[str, object]) -> str:
    if probe.kind is not ProbeKind.COMMAND or probe.command in commands:
        return ""
    return f"{UNKNOWN_COMMAND} {probe.command!r}; there are: {', '.join(sorted(commands)) or 'none'}"
