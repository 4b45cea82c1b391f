"""Requests on behalf of accounts: who may act for whom, and what is requested (`OnBehalf`). Pure.

Every sender may act for itself, which adds a reason to its request. A portal's user acts for the portal's users, as the
roles of the bus, and for itself, to read. The request is then authorized for the account alone.
"""

from __future__ import annotations

from msgspec import structs

from daemons.access.identity import who
from shared.base.errors import CodecError, InvalidValue
from shared.ports.effects import Received
from shared.protocol import topology
from shared.protocol.account_messages import OnBehalf
from shared.protocol.codec import decode, encode
from shared.protocol.operator_messages import Request
from shared.values.scalars import check_name

PEOPLE = (topology.OPERATOR_USER_PREFIX, topology.OWNER_USER_PREFIX, topology.USER_USER_PREFIX)


def on_behalf(account: str, request: Request, why: str = "") -> OnBehalf:
    """Return a request of an account in the form that is sent. Raises `InvalidValue` for a reason that is too long,
    `CodecError` for a request that cannot be sent."""
    return OnBehalf(request.request, account, why, encode(request))


def asked_by(received: Received, message: OnBehalf) -> Received:
    """Return an account's request, as if it had come from there. Raises `CodecError` if it is not a request."""
    request = decode(message.body)
    if not isinstance(request, Request):
        raise CodecError(f"on-behalf: body: expected a request, got {request.KIND}")
    if request.request != message.request:
        raise CodecError("on-behalf: body: the request in it has another id")
    return structs.replace(received, sender=message.account, message=request, via=received.sender, why=message.why)


def may_speak_for(sender: str, account: str) -> bool:
    """Return whether a user of the broker may send requests on behalf of an account."""
    if sender == account:
        return who(sender) is not None
    return is_portal(sender) and is_person(account)


def is_portal(sender: str) -> bool:
    """Return whether a user of the broker is a portal's: it sends only requests on behalf of others."""
    return sender.startswith(topology.PORTAL_USER_PREFIX)


def is_person(account: str) -> bool:
    """Return whether an account is one that people log in with at a portal: a role of the bus, a dot and a name."""
    prefix = next((each for each in PEOPLE if account.startswith(each)), None)
    if prefix is None:
        return False
    try:
        check_name("account", account.removeprefix(prefix))
    except InvalidValue:
        return False
    return True
