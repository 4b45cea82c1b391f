"""Whom the portal asks: the controller, always on behalf of an account. `amqp_client.py` asks over RabbitMQ."""

from __future__ import annotations

from typing import Any, Protocol

from daemons.access.delegation import on_behalf
from shared.base.errors import CodecError, InvalidValue, PermanentError, TransientError
from shared.protocol.codec import encode
from shared.protocol.operator_messages import Request

PORTAL = "portal"  # the role before the dot of the portal's own account


class Refused(PermanentError):
    """The controller refused a request; `code` and `detail` are those of its reply."""

    code = "refused"

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code  # type: ignore[misc]  # of the one reply, where other errors have one per class
        self.detail = detail


class Unreachable(TransientError):
    """No controller answers, or the broker is away, since `since_s` (UTC epoch seconds); `why` in words."""

    code = "unreachable"

    def __init__(self, since_s: float, why: str) -> None:
        super().__init__(why)
        self.since_s, self.why = since_s, why


def body_of(account: str, request: Request, why: str) -> bytes:
    """Return the message that has a request carried out for an account. Raises `Refused` if it cannot be sent."""
    try:
        return encode(on_behalf(account, request, why))
    except (CodecError, InvalidValue) as error:
        raise Refused(error.code, str(error)) from error


class ControllerClient(Protocol):
    """Asks the controller. Every method may be called from any task of the portal's event loop."""

    @property
    def own(self) -> str:
        """The portal's own account, "portal.NAME", which may ask every view of the provider."""
        ...

    def now_s(self) -> float:
        """UTC epoch seconds."""
        ...

    def new_id(self) -> str:
        """Return an id for a new request; never the same twice."""
        ...

    async def view(self, account: str, what: str, subject: str = "", limit: int = 1000) -> dict[str, Any]:
        """Return a view as the account sees it. Raises `Refused`, and `Unreachable` when nobody answers in time."""
        ...

    async def ask(self, account: str, request: Request, why: str = "") -> Any:
        """Have a request carried out for an account, the data of the answer. The same request may be sent again: its
        id makes it one. Raises as `view`; after `Unreachable` it may still be carried out."""
        ...
