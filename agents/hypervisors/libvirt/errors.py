"""What each of libvirt's errors means to Trimtab: try again, somebody must change something, or our own fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TypeVar

from agents.hypervisors.libvirt.codes import Error
from shared.base.errors import ContractViolation, PermanentError, TransientError, TrimtabError
from shared.values.actions import Outcome

TEXT_MAX = 400
Reading = TypeVar("Reading")
_NO_MEMORY = ("cannot allocate memory", "cannot set up guest memory", "out of memory", "unable to allocate memory")


class Unavailable(TransientError):
    """libvirt does not answer, is busy, or failed in a way that may pass. `broken`: the connection is gone."""

    def __init__(self, text: str, number: int = 0, broken: bool = False) -> None:
        super().__init__(text)
        self.number, self.broken = number, broken


class NotConverging(TransientError):
    """A migration was aborted, since its guest changes memory faster than it is sent."""


class NoMemory(TransientError):
    """The host has no memory for it now."""

    def __init__(self, text: str, number: int = 0) -> None:
        super().__init__(text)
        self.number = number


class Declined(PermanentError):
    """libvirt refuses it, and will until something is changed: a definition, a permission, a setting."""

    def __init__(self, text: str, number: int = 0) -> None:
        super().__init__(text)
        self.number = number


class NotThere(Declined):
    """What was named does not exist: a domain, a volume, a pool."""


class Misused(ContractViolation):
    """The driver called libvirt in a way that libvirt has no meaning for."""

    def __init__(self, text: str, number: int = 0) -> None:
        super().__init__(text)
        self.number = number


class Meaning(Enum):
    """What follows from an error number."""

    BROKEN = "broken"  # the connection is gone
    AGAIN = "again"
    MEMORY = "memory"
    CHANGE = "change"
    MISSING = "missing"
    FAULT = "fault"


_MEANINGS: dict[Meaning, tuple[Error, ...]] = {
    Meaning.BROKEN: (
        Error.NO_CONNECT,
        Error.UNKNOWN_HOST,
        Error.INVALID_CONN,
        Error.RPC,
        Error.GNUTLS_ERROR,
        Error.SSH,
        Error.LIBSSH,
        Error.HTTP_ERROR,
        Error.GET_FAILED,
        Error.POST_FAILED,
        Error.NO_SERVER,
        Error.NO_CLIENT,
        Error.DBUS_SERVICE,
    ),
    Meaning.AGAIN: (
        Error.INTERNAL_ERROR,  # all that libvirt has no number for
        Error.OPERATION_FAILED,
        Error.OPERATION_INVALID,  # the VM is in another state than it was when this was asked
        Error.OPERATION_TIMEOUT,
        Error.OPERATION_ABORTED,
        Error.SYSTEM_ERROR,
        Error.CALL_FAILED,
        Error.OPEN_FAILED,
        Error.READ_FAILED,
        Error.WRITE_FAILED,
        Error.RESOURCE_BUSY,
        Error.BLOCK_COPY_ACTIVE,
        Error.AGENT_UNRESPONSIVE,
        Error.AGENT_UNSYNCED,
        Error.HOOK_SCRIPT_FAILED,
        Error.MIGRATE_PERSIST_FAILED,
        Error.MIGRATE_FINISH_OK,
        Error.DRIVER_FULL,
        Error.STORAGE_PROBE_FAILED,
        Error.INVALID_STREAM,
        Error.NO_XENSTORE,
        Error.XEN_CALL,
    ),
    Meaning.MEMORY: (Error.NO_MEMORY,),
    Meaning.MISSING: (
        Error.NO_DOMAIN,
        Error.NO_STORAGE_VOL,
        Error.NO_STORAGE_POOL,
        Error.NO_DOMAIN_METADATA,
        Error.NO_DOMAIN_SNAPSHOT,
        Error.NO_DOMAIN_CHECKPOINT,
        Error.NO_DOMAIN_BACKUP,
    ),
    Meaning.FAULT: (
        Error.INVALID_DOMAIN,
        Error.INVALID_ARG,
        Error.INVALID_NETWORK,
        Error.INVALID_STORAGE_POOL,
        Error.INVALID_STORAGE_VOL,
        Error.INVALID_NODE_DEVICE,
        Error.INVALID_INTERFACE,
        Error.INVALID_NWFILTER,
        Error.INVALID_NWFILTER_BINDING,
        Error.INVALID_SECRET,
        Error.INVALID_DOMAIN_SNAPSHOT,
        Error.INVALID_DOMAIN_CHECKPOINT,
        Error.INVALID_NETWORK_PORT,
        Error.OVERFLOW,
        Error.OK,
    ),
}
_MEANING = {error: meaning for meaning, errors in _MEANINGS.items() for error in errors}


def meaning_of(number: int, text: str = "") -> Meaning:
    """Return the meaning of an error number, known or not; the text shows whether memory ran out."""
    if any(words in text.lower() for words in _NO_MEMORY):
        return Meaning.MEMORY
    try:
        return _MEANING.get(Error(number), Meaning.CHANGE)
    except ValueError:
        return Meaning.AGAIN  # of a newer libvirt


def mapped(error: Exception, doing: str) -> TrimtabError:
    """Map a libvirt error to a TrimtabError; `doing` says what failed. Without a number it is transient."""
    number, said = _number(error), _text(error)
    text = f"{doing}: {said}"
    meaning = meaning_of(number, said) if number is not None else Meaning.AGAIN
    if meaning is Meaning.BROKEN:
        return Unavailable(text, number or 0, broken=True)
    if meaning is Meaning.AGAIN:
        return Unavailable(text, number or 0)
    kinds = {
        Meaning.MEMORY: NoMemory,
        Meaning.CHANGE: Declined,
        Meaning.MISSING: NotThere,
        Meaning.FAULT: Misused,
    }
    return kinds[meaning](text, number or 0)


@contextmanager
def telling(kind: type[Exception], doing: str) -> Iterator[None]:
    """Calls inside raise our errors instead of libvirt's `kind`."""
    try:
        yield
    except kind as error:
        raise mapped(error, doing) from error


def outcome_of(error: TrimtabError, begun: bool) -> Outcome:
    """Return the outcome of an operation that ended with an error: REFUSED and NO_SUCH_VM if it changed nothing."""
    if isinstance(error, NoMemory):
        return Outcome.NO_ROOM
    if isinstance(error, NotConverging):
        return Outcome.NOT_CONVERGING
    if isinstance(error, PermanentError) and not begun:
        return Outcome.REFUSED
    return Outcome.FAILED


def _number(error: Exception) -> int | None:
    read = getattr(error, "get_error_code", None)
    number = read() if read is not None else None
    return number if isinstance(number, int) else None


def _text(error: Exception) -> str:
    said = " ".join(str(error).split())
    return said[:TEXT_MAX] or type(error).__name__


def transient(read: Callable[[], Reading]) -> Reading:
    """Convert libvirt's refusal of a reading to a transient error: it may work later, and the port has no other
    error."""
    try:
        return read()
    except TransientError:
        raise
    except TrimtabError as error:
        raise Unavailable(str(error)) from error
