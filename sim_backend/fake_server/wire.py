"""What the clients of a fake server and the server say to each other: frames of a length and a msgpack body.

A frame is 4 bytes, big-endian, that count the bytes of the body, at most `FRAME_BYTES_MAX`. Clients send `Call`, the
server `Answer`: replies carry the number of their call, what nobody asked for has number 0.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from shared.base.errors import CodecError
from shared.ports.effects import GuestChanged, Operated
from shared.protocol.codec import pack, unpack
from shared.protocol.topology import BODY_BYTES_MAX
from shared.values.actions import Action, ActionKind
from shared.values.nodes import Node
from shared.values.vms import VmStatus

FRAME_BYTES_MAX = BODY_BYTES_MAX
_HEAD = struct.Struct(">I")
T = TypeVar("T")


class What(StrEnum):
    """What a call asks for. HELLO makes the connection that of a node's agent; the four after INVENTORY are for such
    connections and BEGIN, ABORT and FORGET have no reply. CONTROL is for tests and demonstrations."""

    HELLO = "hello"
    INVENTORY = "inventory"
    VMS = "vms"
    BEGIN = "begin"
    ABORT = "abort"
    FORGET = "forget"
    CONTROL = "control"


class Order(StrEnum):
    """Commands of the control channel."""

    STATE = "state"
    WORK = "work"
    LOAD = "load"
    FAIL_NEXT = "fail-next"
    CLEAR_FAILURES = "clear-failures"
    LOSE_VM = "lose-vm"
    CRASH_VM = "crash-vm"
    HOST_DIES = "host-dies"
    HOST_RETURNS = "host-returns"
    FENCE = "fence"
    PART = "part"
    HEAL = "heal"
    ADVANCE = "advance"


class How(StrEnum):
    """How an operation is to fail, see `FakeHypervisor.fail_next`."""

    REFUSE = "refuse"
    HANG = "hang"
    FAIL_HALF_WAY = "fail-half-way"


@dataclass(frozen=True, slots=True)
class Control:
    """An order to the world and what it is about: `node` and `peer` hosts, `vm` a VM ("": any), `kind` an operation
    (None: any), `job` and `template` for WORK, `job` and `mhz` for LOAD, `seconds` for ADVANCE. What an order does not
    need is left out."""

    order: Order
    node: str = ""
    peer: str = ""
    vm: str = ""
    kind: ActionKind | None = None
    how: How = How.REFUSE
    job: str = ""
    template: str = ""
    seconds: float = 0.0
    mhz: float = 0.0


@dataclass(frozen=True, slots=True)
class Call:
    """A client's request. `call` (1 and up) numbers those that want a reply; 0 wants none. `refused`: why the action
    to begin could not be sent as it is; it is answered REFUSED."""

    what: What
    call: int = 0
    node: str = ""
    vm: str = ""
    action: Action | None = None
    refused: str = ""
    control: Control | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server says. `error`: why the call could not be served. `node` and `boot_id` answer HELLO and
    INVENTORY, `vms` VMS, `data` CONTROL; `operated` and `changed` come unasked."""

    call: int = 0
    error: str = ""
    node: Node | None = None
    boot_id: str = ""
    vms: tuple[VmStatus, ...] = ()
    operated: Operated | None = None
    changed: GuestChanged | None = None
    data: Any = None


def to_frame(value: Call | Answer) -> bytes:
    """Return the bytes of one frame. Raises CodecError for a value that does not fit into a frame."""
    body = pack(value, type(value))
    return _HEAD.pack(len(body)) + body


class Frames:
    """Cuts a stream of bytes into values of class `cls`."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes, cls: type[T]) -> list[T]:
        """Return the values that this data completes. Raises CodecError for a frame that is too long or no `cls`; after
        that the stream cannot be read any further."""
        held = self._held
        held += data
        values: list[T] = []
        at = 0
        while len(held) - at >= _HEAD.size:
            (length,) = _HEAD.unpack_from(held, at)
            if length > FRAME_BYTES_MAX:
                raise CodecError(f"a frame of {length} bytes, expected at most {FRAME_BYTES_MAX}")
            end = at + _HEAD.size + length
            if len(held) < end:
                break
            values.append(unpack(bytes(held[at + _HEAD.size : end]), cls))
            at = end
        del held[:at]
        return values
