"""Who a sender of the bus is: the provider, an owner of environments, a user, a portal. Pure; who sends is the broker's
word."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shared.base.errors import InvalidValue
from shared.protocol import topology
from shared.values.scalars import check_name


class Role(StrEnum):
    """What somebody is to the provider's cluster."""

    PROVIDER = "provider"
    OWNER = "owner"
    USER = "user"
    PORTAL = "portal"  # for its own pages: sees what the provider sees, changes nothing


PREFIXES = (
    (topology.OPERATOR_USER_PREFIX, Role.PROVIDER),
    (topology.CONTROLLER_USER_PREFIX, Role.PROVIDER),
    (topology.OWNER_USER_PREFIX, Role.OWNER),
    (topology.USER_USER_PREFIX, Role.USER),
    (topology.PORTAL_USER_PREFIX, Role.PORTAL),
)
SEE_ALL = (Role.PROVIDER, Role.PORTAL)


@dataclass(frozen=True, slots=True)
class Who:
    """Who asks. name: the part of `sender` after the role."""

    role: Role
    name: str
    sender: str

    @property
    def sees_all(self) -> bool:
        """Whether nothing of the cluster is hidden."""
        return self.role in SEE_ALL


def who(sender: str) -> Who | None:
    """Return who a sender is; None for one without any rights."""
    for prefix, role in PREFIXES:
        name = sender.removeprefix(prefix)
        if name != sender and (role is Role.PROVIDER or _is_name(name)):
            return Who(role, name, sender)
    return None


def _is_name(name: str) -> bool:
    try:
        check_name("name", name)
    except InvalidValue:
        return False
    return True
