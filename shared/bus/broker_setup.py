"""What a broker must hold for Trimtab (users, permissions, exchanges, queues, limits), and how it gets there.

The plan is a value in RabbitMQ's own format of definitions, made from the tables in `topology` and `permissions`. The
broker takes it in one piece, by `rabbitmqctl` on its own machine or over its management interface; what is there
already stays, with all its messages. `differences` says what a broker lacks.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from shared.base.deadline import Deadline
from shared.base.errors import BusUnavailable, PermanentError
from shared.base.http_client import HttpError, Request, exchange
from shared.bus.rabbitmq.addresses import queue_arguments
from shared.protocol.permissions import NOTHING, grant_of
from shared.protocol.shares import has_share, share_of
from shared.protocol.topology import (
    CONTROLLER,
    DEAD_LETTERS,
    EXCHANGES,
    QueueSpec,
    agent_queue,
    owner_of_queue,
)

Definitions = dict[str, list[dict[str, Any]]]

SALT_BYTES = 4  # as RabbitMQ wants it
HASHING = "rabbit_password_hashing_sha256"
FIRST_USER = "guest"  # its password is the same
ANSWER_S = 60.0
ANSWER_BYTES_MAX = 256 << 20
SAID_BYTES_MAX = 500  # of a refusal
# What tells two definitions of a kind apart; the rest is what they say.
KEYS: Mapping[str, tuple[str, ...]] = {
    "vhosts": ("name",),
    "users": ("name",),
    "permissions": ("vhost", "user"),
    "topic_permissions": ("vhost", "user", "exchange"),
    "exchanges": ("vhost", "name"),
    "queues": ("vhost", "name"),
    "bindings": ("vhost", "source", "destination", "routing_key"),
    "policies": ("vhost", "name"),
    "parameters": ("vhost", "component", "name"),
}
UNCOMPARED = ("password_hash", "hashing_algorithm", "tags", "metadata", "destination_type")
MIB = 1 << 20
# What lies in the queues of askers and readers is for somebody who waits for it; the queue goes with its reader.
OWN_QUEUES = {"max-length-bytes": 16 * MIB, "message-ttl": 15_000, "expires": 60_000}
# By name: the pattern of queues, and what nobody who declares one can exceed.
FULL_FRAC = 0.5  # of its bytes: a queue that drops its oldest is seldom quite full
QUEUES_MAX = 200  # of one account: more than it has channels to read them; the broker has no limit for it
OPERATOR_POLICIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "trimtab-own": (r"^(reply|events)\.", OWN_QUEUES),
    "trimtab-reports": (r"^reports\.", {"max-length-bytes": 256 * MIB}),
    "trimtab-dead": ("^dead$", {"max-length-bytes": 256 * MIB}),
}
# What comes beyond that is refused, not what is there dropped: whoever sends results and requests repeats them.
POLICIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "trimtab-controller": ("^controller$", {"max-length-bytes": 1024 * MIB, "overflow": "reject-publish"}),
}


@dataclass(frozen=True, slots=True)
class Account:
    """A user to be made, or to get this password."""

    user: str
    password: str = field(repr=False)


def fresh_salt() -> bytes:
    """Bytes that nobody can foresee."""
    return secrets.token_bytes(SALT_BYTES)


def definitions(
    vhost: str,
    accounts: Iterable[Account],
    nodes: Iterable[str] = (),
    queues: Sequence[QueueSpec] = (CONTROLLER, DEAD_LETTERS),
    salt: Callable[[], bytes] = fresh_salt,
) -> Definitions:
    """Return everything that a vhost must hold: exchanges, `queues` and one queue per node, and each account with its
    permissions. `salt` gives 4 bytes for each password."""
    people = tuple(accounts)
    specs = (*queues, *map(agent_queue, nodes))
    return {
        "vhosts": [{"name": vhost}],
        "users": [_user(account, salt()) for account in people],
        "permissions": [_permission(vhost, account.user) for account in people],
        "topic_permissions": [limit for account in people for limit in _topic_permissions(vhost, account.user)],
        "exchanges": [
            {
                "name": name,
                "vhost": vhost,
                "type": kind.value,
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": {},
            }
            for name, kind in EXCHANGES.items()
        ],
        "queues": [_queue(vhost, spec) for spec in specs],
        "bindings": [binding for spec in specs for binding in _bindings(vhost, spec)],
        "policies": [
            {"vhost": vhost, "name": name, "priority": 0, **_policy(pattern, keys)}
            for name, (pattern, keys) in POLICIES.items()
        ],
        "parameters": [
            {"vhost": vhost, "component": "operator_policy", "name": name, "value": {"priority": 0, **_policy(*policy)}}
            for name, policy in OPERATOR_POLICIES.items()
        ],
    }


def _policy(pattern: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    return {"pattern": pattern, "apply-to": "queues", "definition": dict(keys)}


def limits_of(user: str) -> dict[str, int]:
    """Return the maximum numbers of connections and channels of an account, in RabbitMQ's terms."""
    share = share_of(user)
    limits = {"max-connections": share.connections_max, "max-channels": share.channels_max}
    return {name: most for name, most in limits.items() if most}


@dataclass(frozen=True, slots=True)
class Use:
    """What an account has of something that is limited, and how much of it it may have."""

    account: str
    what: str
    used: int
    most: int


def at_limits(
    connections: Iterable[tuple[str, int]],
    queues: Iterable[tuple[str, int]],
    transactions: Iterable[tuple[str, int]] = (),
) -> tuple[Use, ...]:
    """Return the accounts that have reached their limits. `connections`: user and channels of each; `queues`: name and
    bytes of each; `transactions`: user and uncommitted messages of each channel that has one. Trimtab uses no
    transactions, and the broker keeps their messages without a limit."""
    open_now, channels = Counter[str](), Counter[str]()
    for user, count in connections:
        open_now[user] += 1
        channels[user] += count
    found = []
    for user in sorted(filter(has_share, open_now)):
        share = share_of(user)
        for what, used, most in (
            ("connections", open_now[user], share.connections_max),
            ("channels", channels[user], share.channels_max),
        ):
            if most and used >= most:
                found.append(Use(user, what, used, most))
    uncommitted = Counter[str]()
    for user, count in transactions:
        uncommitted[user] += count
    found += [Use(user, "messages in transactions", uncommitted[user], 0) for user in sorted(uncommitted)]
    full = OWN_QUEUES["max-length-bytes"]
    owned = Counter[str]()
    for queue, size in sorted(queues):
        if owner := owner_of_queue(queue):
            owned[owner] += 1
            if size >= full * FULL_FRAC:
                found.append(Use(owner, f"bytes in {queue}", size, full))
    found += [Use(owner, "queues", owned[owner], QUEUES_MAX) for owner in sorted(owned) if owned[owner] >= QUEUES_MAX]
    return tuple(found)


def keeping(wanted: Mapping[str, Any], present: Mapping[str, Any], vhost: str, fresh: Iterable[str]) -> Definitions:
    """Return the wanted definitions with the existing passwords; only accounts that are `fresh` get the wanted
    passwords. All accounts of Trimtab's roles that may enter the vhost get their limits and permissions."""
    new, ours = set(fresh), {one["user"] for one in present.get("permissions", ()) if one["vhost"] == vhost}
    kept = [
        {**user, "limits": limits_of(user["name"])}
        for user in present.get("users", ())
        if user["name"] not in new and user["name"] in ours and has_share(user["name"])
    ]
    others = sorted({user["name"] for user in kept} - {one["user"] for one in wanted["permissions"]})
    return {
        **wanted,
        "users": [*(user for user in wanted["users"] if user["name"] in new), *kept],
        "permissions": [*wanted["permissions"], *(_permission(vhost, user) for user in others)],
        "topic_permissions": [
            *wanted["topic_permissions"],
            *(limit for user in others for limit in _topic_permissions(vhost, user)),
        ],
    }


def password_hash(password: str, salt: bytes) -> str:
    """Return a password in RabbitMQ's format: base64 of the salt and the SHA-256 of salt and password."""
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def _user(account: Account, salt: bytes) -> dict[str, Any]:
    return {
        "name": account.user,
        "password_hash": password_hash(account.password, salt),
        "hashing_algorithm": HASHING,
        "tags": "",
        "limits": limits_of(account.user),
    }


def _permission(vhost: str, user: str) -> dict[str, Any]:
    grant = grant_of(user)
    return {"user": user, "vhost": vhost, "configure": grant.configure, "write": grant.write, "read": grant.read}


def _topic_permissions(vhost: str, user: str) -> list[dict[str, Any]]:
    return [
        {"user": user, "vhost": vhost, "exchange": exchange, "write": pattern, "read": NOTHING}
        for exchange, pattern in grant_of(user).topic_writes
    ]


def _queue(vhost: str, spec: QueueSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "vhost": vhost,
        "durable": spec.durable,
        "auto_delete": False,
        "arguments": queue_arguments(spec),
    }


def _bindings(vhost: str, spec: QueueSpec) -> list[dict[str, Any]]:
    return [
        {
            "source": exchange,
            "vhost": vhost,
            "destination": spec.name,
            "destination_type": "queue",
            "routing_key": key,
            "arguments": {},
        }
        for exchange, key in spec.bindings
    ]


def differences(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the differences of a broker that exported `present`, a line each: what it lacks or has otherwise.
    Passwords cannot be compared. Extra items beyond `wanted` are not listed."""
    found = []
    for kind, keys in KEYS.items():
        there = {_key(keys, one): one for one in present.get(kind, ())}
        for one in wanted.get(kind, ()):
            key = _key(keys, one)
            name = " ".join(part for part in key if part)
            if key not in there:
                found.append(f"{kind}: {name} is missing")
                continue
            found += [
                f"{kind}: {name}: {what} is {there[key].get(what)!r}, not {value!r}"
                for what, value in one.items()
                if what not in UNCOMPARED and there[key].get(what, value) != value  # what is left out is as we want it
            ]
            if kind == "users" and (more := _tags(there[key].get("tags")) - _tags(one["tags"])):
                found.append(f"users: {name}: may also do what {', '.join(sorted(more))} may")
    return tuple(found)


def has_well_known_password(present: Mapping[str, Any]) -> bool:
    """Return whether a broker that exported `present` still has the default user of every new broker, with its
    password."""
    for user in present.get("users", ()):
        if user["name"] == FIRST_USER and user.get("hashing_algorithm") == HASHING:
            salt = base64.b64decode(user.get("password_hash", ""))[:SALT_BYTES]
            return bool(user.get("password_hash") == password_hash(FIRST_USER, salt))
    return False


def _tags(value: object) -> set[str]:
    """RabbitMQ exports them as a list, or as one text with commas."""
    return {*value.split(",")} - {""} if isinstance(value, str) else {str(each) for each in value or ()}  # type: ignore[attr-defined]


def _key(keys: tuple[str, ...], one: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(one.get(key, "")) for key in keys)


class Executor(Protocol):
    """A way to change a broker. Each raises BusUnavailable when the broker does not answer, PermanentError when it
    refuses; both say why."""

    def apply(self, wanted: Mapping[str, Any]) -> None:
        """Make everything of `wanted` that is not there. A queue of another shape stays as it is: see `differences`."""
        ...

    def present(self) -> Definitions:
        """Return the broker's definitions."""
        ...

    def remove_user(self, user: str) -> None:
        """Remove a user; one that is not there is fine."""
        ...

    def remove_queue(self, vhost: str, queue: str) -> None:
        """Remove a queue with its messages; one that is not there is fine."""
        ...


class ManagementApi:
    """The broker's management interface over HTTP: an `Executor` for any machine that reaches it. The administrator's
    password goes to the address that was given, and is sent on to no other: redirects are refusals."""

    def __init__(self, url: str, user: str, password: str, answer_s: float = ANSWER_S) -> None:
        self._url = url.rstrip("/")
        self._credentials = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self._answer_s = answer_s

    def apply(self, wanted: Mapping[str, Any]) -> None:
        """See `Executor`."""
        self.call("POST", "definitions", dict(wanted))

    def present(self) -> Definitions:
        """See `Executor`."""
        found: Definitions = self.call("GET", "definitions")
        return found

    def remove_user(self, user: str) -> None:
        """See `Executor`."""
        self.call("DELETE", f"users/{quote(user, safe='')}")

    def remove_queue(self, vhost: str, queue: str) -> None:
        """See `Executor`."""
        self.call("DELETE", f"queues/{quote(vhost, safe='')}/{quote(queue, safe='')}")

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Send one request below `/api/`; returns the answer, parsed, None when it is empty. Deleting what is not there
        is fine. Raises BusUnavailable and PermanentError, see `Executor`."""
        headers = {"Authorization": self._credentials, "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self._url}/api/{path}", method, headers, body=data, named=self._url, proxies=True)
        try:
            with exchange(request, Deadline(self._answer_s)) as answer:
                if answer.status == 404 and method == "DELETE":
                    return None
                if not 200 <= answer.status < 300:
                    said = answer.beginning(SAID_BYTES_MAX).decode(errors="replace")
                    raise PermanentError(f"{self._url} refused {method} {path}: {answer.status} {said}")
                text = answer.read(ANSWER_BYTES_MAX)
        except HttpError as problem:
            error = PermanentError if problem.is_final else BusUnavailable
            raise error(f"{self._url} does not answer ({problem.words}): is its management plugin on?") from problem
        try:
            return json.loads(text) if text else None
        except ValueError as problem:
            raise PermanentError(f"{self._url} answers {method} {path} with something else than JSON") from problem


class Rabbitmqctl:
    """The broker's own command, on the broker's machine, as root or the broker's user: an `Executor`."""

    def __init__(
        self,
        command: Sequence[str] = ("rabbitmqctl",),
        environment: Mapping[str, str] | None = None,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._command = tuple(command)
        self._environment = None if environment is None else dict(environment)
        self._answer_s = answer_s

    def apply(self, wanted: Mapping[str, Any]) -> None:
        """See `Executor`."""
        with tempfile.TemporaryDirectory(prefix="trimtab-") as folder:
            file = Path(folder) / "definitions.json"
            file.write_text(json.dumps(wanted))
            # The command may run as the broker's user; the passwords in the file are salted hashes.
            Path(folder).chmod(0o755)
            file.chmod(0o644)
            self._run("import_definitions", str(file))

    def present(self) -> Definitions:
        """See `Executor`."""
        found: Definitions = json.loads(self._run("export_definitions", "-"))
        return found

    def remove_user(self, user: str) -> None:
        """See `Executor`."""
        self._run("delete_user", user, unless="does not exist")

    def remove_queue(self, vhost: str, queue: str) -> None:
        """See `Executor`."""
        self._run("--vhost", vhost, "delete_queue", queue, unless="not found")

    def connections(self) -> list[tuple[str, int]]:
        """Return the user and the number of channels of each connection."""
        found = json.loads(self._run("list_connections", "user", "channels", "--formatter", "json") or "[]")
        return [(str(one["user"]), int(one["channels"] or 0)) for one in found]

    def transactions(self) -> list[tuple[str, int]]:
        """Return the user of each channel that is in a transaction, and the number of its uncommitted messages."""
        columns = ("user", "transactional", "messages_uncommitted")
        found = json.loads(self._run("list_channels", *columns, "--formatter", "json") or "[]")
        return [(str(one["user"]), int(one["messages_uncommitted"] or 0)) for one in found if one["transactional"]]

    def queues(self, vhost: str) -> list[tuple[str, int]]:
        """Return the name of each queue of a vhost, and the number of bytes in it."""
        listed = self._run("--vhost", vhost, "list_queues", "name", "message_bytes", "--formatter", "json")
        return [(str(one["name"]), int(one["message_bytes"] or 0)) for one in json.loads(listed or "[]")]

    def _run(self, *arguments: str, unless: str = "\0") -> str:
        """Standard output. `unless`: words of a failure that is none."""
        command = (*self._command, "--quiet", *arguments)
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=self._answer_s, env=self._environment, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise BusUnavailable(f"{self._command[0]} cannot be run or does not end: {problem}") from problem
        said = (done.stderr or done.stdout).strip()
        if done.returncode and unless not in f"{done.stdout}{done.stderr}":
            error = BusUnavailable if "unable to perform an operation on node" in said else PermanentError
            raise error(f"{' '.join(command)} failed: {said[-500:]}")
        return done.stdout
