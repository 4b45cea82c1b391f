"""What HAProxy says that it has: its servers, and what it has counted. Pure."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from daemons.drivers.load_balancers.haproxy_config import DesiredProxy, Server, proxy_of, variable_of
from shared.base.errors import TransientError
from shared.values.web_app import FlowSample

MAINTENANCE = 0x01 | 0x02 | 0x20  # of a server's administrative state: by us, with another, for want of an address
DRAINED = 0x08 | 0x10
RUNNING = 2  # of a server's operational state
STATE_FIELDS = 19
ROWS, SERVER_ROWS = 7, 4  # of `show stat`: frontend, backend and servers; servers


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server in HAProxy. `sessions`: requests in progress on it or queued for it."""

    name: str
    address: str
    port: int
    weight: int
    request_max: int
    up: bool
    drains: bool
    resting: bool
    sessions: int

    @property
    def serves(self) -> bool:
        """Whether it gets new requests."""
        return self.up and not self.drains and not self.resting


@dataclass(frozen=True, slots=True)
class Counters:
    """What HAProxy has counted of an application since the worker process `process` began.

    answered: with a status below 500, by instances. errors: with one of 500 or above, by instances. failed: with one of
    500 or above, by whomever. refused: by the bound of the queue. spent_us: from each request to the begin of its
    answer, over all that instances answered.
    """

    process: tuple[int, int]
    offered: int
    refused: int
    answered: int
    failed: int
    errors: int
    spent_us: int
    queued: int

    def since(self, before: Counters, window_s: float) -> FlowSample | None:
        """Return the increase since an earlier reading, None when HAProxy restarted in between."""
        served = self.served - before.served
        rejected = self.rejected - before.rejected
        offered, spent_us = self.offered - before.offered, self.spent_us - before.spent_us
        if self.process != before.process or min(served, offered, spent_us) < 0 or window_s <= 0.0:
            return None
        mean_s = 1e-6 * spent_us / served if served else 0.0
        return FlowSample(
            "", window_s, offered, served=served, rejected=max(0, rejected), queued=self.queued, mean_s=mean_s
        )

    @property
    def served(self) -> int:
        """Answered by instances."""
        return self.answered + self.errors

    @property
    def rejected(self) -> int:
        """Turned away, or lost with an instance."""
        return self.refused + self.failed - self.errors


@dataclass(frozen=True, slots=True)
class Table:
    """What HAProxy has of an application. `digest`: of the form that it was loaded with."""

    digest: str
    queue_max: int
    servers: dict[str, ServerState]
    counters: Counters


def looking(app: str) -> tuple[str, ...]:
    """Commands whose output `parse_table` reads."""
    proxy, variables = proxy_of(app), (variable_of(app, what) for what in ("form", "queue", "spent", "errors"))
    shows = (f"show servers state {proxy}", f"show stat {proxy} {ROWS} -1", "show info")
    return (*shows, *(f"get var {name}" for name in variables))


def parse_process(printed: str) -> int:
    """Return the process that answered, from `show info` in its output. Raises TransientError when it is missing."""
    for line in printed.splitlines():
        if line.startswith("Pid: ") and line[5:].isdigit():
            return int(line[5:])
    raise TransientError(f"HAProxy answers {printed[:200]!r}")


def requests(app: str) -> str:
    """Return the command whose output `parse_requests` reads."""
    return f"show stat {proxy_of(app)} {SERVER_ROWS} -1"


def parse_requests(app: str, printed: str) -> dict[str, int]:
    """Return the requests in progress on each server of an application, and queued for it; nothing if HAProxy has none.
    Raises TransientError for anything but such a table."""
    try:
        rows = _rows(proxy_of(app), printed.splitlines())
        return {name: int(row["scur"] or 0) + int(row["qcur"] or 0) for name, row in rows.items()}
    except (KeyError, ValueError, IndexError) as error:
        raise _unclear(error) from error


def parse_table(app: str, printed: str) -> Table | None:
    """Return HAProxy's state of an application, None when it has none. Raises TransientError when the answer shows
    neither."""
    lines = printed.splitlines()
    try:
        rows = _rows(proxy_of(app), lines)
        if "BACKEND" not in rows:
            if "Can't find backend." in printed:
                return None
            raise TransientError(f"HAProxy answers {printed[:200]!r}")
        return _table(app, rows, _variables(app, lines), lines) if "FRONTEND" in rows else None
    except (KeyError, ValueError, IndexError) as error:
        raise _unclear(error) from error


def _unclear(error: Exception) -> TransientError:
    return TransientError(f"HAProxy answers what cannot be understood: {error!r}")


def _table(app: str, rows: dict[str, dict[str, str]], variables: dict[str, str], lines: Sequence[str]) -> Table:
    states = _states(proxy_of(app), lines)
    servers = {name: _seen(name, states[name], rows[name]) for name in rows.keys() & states.keys()}
    return Table(
        variables.get("form", ""),
        int(variables.get("queue", "0")),
        servers,
        _counters(rows, variables, lines),
    )


def _seen(name: str, state: Sequence[str], row: dict[str, str]) -> ServerState:
    flags = int(state[6])
    return ServerState(
        name,
        state[4],
        int(state[18]),
        weight=int(state[7]),
        request_max=int(row["slim"] or 0),
        up=int(state[5]) == RUNNING,
        drains=bool(flags & DRAINED),
        resting=bool(flags & MAINTENANCE),
        sessions=int(row["scur"] or 0) + int(row["qcur"] or 0),
    )


def _counters(rows: dict[str, dict[str, str]], variables: dict[str, str], lines: Sequence[str]) -> Counters:
    front, back = rows["FRONTEND"], rows["BACKEND"]
    info = dict(line.split(": ", 1) for line in lines if line.startswith(("Pid: ", "Start_time_sec: ")))
    return Counters(
        (int(info["Pid"]), int(info["Start_time_sec"])),
        int(front["req_tot"]),
        int(front["dreq"]),
        answered=sum(int(back[f"hrsp_{digit}xx"]) for digit in (2, 3, 4)),
        failed=int(back["hrsp_5xx"]),
        errors=int(variables.get("errors", "0")),
        spent_us=int(variables.get("spent", "0")),
        queued=sum(int(row["qcur"] or 0) for row in rows.values()),
    )


def _rows(proxy: str, lines: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the rows of `show stat` by server."""
    table = [line for line in lines if line.startswith(("# pxname,", f"{proxy},"))]
    if not table:
        return {}
    return {row["svname"]: row for row in csv.DictReader([table[0][2:], *table[1:]])}


def _states(proxy: str, lines: Iterable[str]) -> dict[str, list[str]]:
    """Return the rows of `show servers state` by server."""
    split = (line.split() for line in lines if line[:1].isdigit())
    return {words[3]: words for words in split if len(words) >= STATE_FIELDS and words[1] == proxy}


def _variables(app: str, lines: Iterable[str]) -> dict[str, str]:
    """Return the values of Trimtab's variables by name, as far as HAProxy has them."""
    prefix = variable_of(app, "")
    found = {}
    for line in lines:
        if line.startswith(prefix) and ": type=" in line:
            name, value = line.removeprefix(prefix).split(": type=", 1)
            found[name] = value.partition("value=<")[2].removesuffix(">")
    return found


# --- what separates it from what is wanted ----------------------------------------------------------------------------


def commands(wanted: DesiredProxy, table: Table) -> list[str]:
    """Return the commands that bring HAProxy to the desired state without a reload: servers are added before others are
    removed. If a leaving server is up and no staying one is, it is not drained yet, see `held`."""
    proxy = proxy_of(wanted.app)
    names = {server.name for server in wanted.servers}
    found: list[str] = []
    if table.queue_max != wanted.queue_max:
        found += ["experimental-mode on", f"set var {variable_of(wanted.app, 'queue')} int({wanted.queue_max})"]
    for server in wanted.servers:
        seen = table.servers.get(server.name)
        if seen is None:
            found += wanted.adding(server)
            continue
        name = f"{proxy}/{server.name}"
        if (seen.address, seen.port) != (server.address, server.port):
            found.append(f"set server {name} addr {server.address} port {server.port}")
        if seen.weight != server.weight:
            found.append(f"set server {name} weight {server.weight}")
        if seen.request_max != server.request_max:
            found.append(f"set maxconn server {name} {server.request_max}")
        if seen.resting:
            found += wanted.using(server.name)
        elif seen.drains:
            found.append(f"set server {name} state ready")
    waiting = held(wanted, table)
    return [*found, *emptying(wanted.app, wanted.leaving - waiting, table, names | waiting)]


def held(wanted: DesiredProxy, table: Table) -> Set[str]:
    """Servers that leave and serve still, since none of those that stay is up."""
    stays = table.servers.keys() & {server.name for server in wanted.servers}
    if not wanted.servers or any(table.servers[name].serves for name in stays):
        return frozenset()
    return {name for name in table.servers.keys() & wanted.leaving if table.servers[name].serves}


def at_work(wanted: DesiredProxy, table: Table | None) -> list[Server]:
    """Servers that a new process may take for healthy, since the one before it found them so."""
    if table is None:
        return []
    waiting = held(wanted, table)
    found = [server for server in wanted.servers if server.name in table.servers and table.servers[server.name].serves]
    seen = (table.servers[name] for name in sorted(waiting))
    return [*found, *(Server(one.name, one.address, one.port, one.weight, one.request_max) for one in seen)]


def emptying(app: str, leaving: Set[str], table: Table, staying: Set[str] = frozenset()) -> list[str]:
    """Commands that drain some servers and take out all that do not stay either: with another port a server's idle
    connections are closed, without which it cannot be deleted."""
    proxy, kept = proxy_of(app), leaving | staying
    found = []
    for seen in table.servers.values():
        name = f"{proxy}/{seen.name}"
        if seen.name in leaving and not seen.drains and not seen.resting:
            found.append(f"set server {name} state drain")
        elif seen.name not in kept:
            rest = [] if seen.resting else [f"set server {name} state maint"]
            shut = (f"shutdown sessions server {name}", f"set server {name} addr {seen.address} port 1")
            found += [*rest, *shut, f"del server {name}"]
    return found


def differences(wanted: DesiredProxy, table: Table) -> list[str]:
    """Return the remaining differences, in words; a resting server counts as removed, deleted or not."""
    found = [] if table.queue_max == wanted.queue_max else [f"the queue takes {table.queue_max}"]
    waiting = held(wanted, table)
    for server in wanted.servers:
        seen = table.servers.get(server.name)
        if seen is None or seen.drains or seen.resting:
            found.append(f"{server.name} is not in use")
            continue
        has = (seen.address, seen.port, seen.weight, seen.request_max)
        if has != (server.address, server.port, server.weight, server.request_max):
            found.append(f"{server.name} has {has}")
    for seen in table.servers.values():
        used = not seen.drains and not seen.resting and seen.name not in waiting
        if used and not any(server.name == seen.name for server in wanted.servers):
            found.append(f"{seen.name} is in use still")
    return found
