"""Numbers and errors of libvirt's interface that the stand-in uses."""

from __future__ import annotations

from enum import IntEnum
from typing import NoReturn


class Err(IntEnum):
    """virErrorNumber."""

    INTERNAL_ERROR = 1
    INVALID_CONN = 6
    INVALID_ARG = 8
    OPERATION_FAILED = 9
    NO_NAME = 21
    XML_ERROR = 27
    XML_DETAIL = 35
    SYSTEM_ERROR = 38
    NO_DOMAIN = 42
    NO_NETWORK = 43
    NO_STORAGE_POOL = 49
    NO_STORAGE_VOL = 50
    OPERATION_INVALID = 55
    NO_NWFILTER = 62
    NO_SECRET = 66
    CONFIG_UNSUPPORTED = 67
    OPERATION_TIMEOUT = 68
    ARGUMENT_UNSUPPORTED = 74
    OPERATION_ABORTED = 78
    NO_DOMAIN_METADATA = 80
    MIGRATE_UNSAFE = 81
    OPERATION_UNSUPPORTED = 84
    STORAGE_VOL_EXIST = 90
    CPU_INCOMPATIBLE = 91


class From(IntEnum):
    """virErrorDomain."""

    NONE = 0
    XML = 5
    RPC = 7
    QEMU = 10
    STORAGE = 18
    DOMAIN = 20
    STREAMS = 38
    CGROUP = 54


class State(IntEnum):
    """virDomainState."""

    RUNNING = 1
    PAUSED = 3
    SHUTOFF = 5
    CRASHED = 6


class RunningReason(IntEnum):
    """virDomainRunningReason."""

    BOOTED = 1
    MIGRATED = 2
    RESTORED = 3
    UNPAUSED = 5
    MIGRATION_CANCELED = 6
    SAVE_CANCELED = 7
    CRASHED = 9
    POSTCOPY = 10
    POSTCOPY_FAILED = 11


class Paused(IntEnum):
    """virDomainPausedReason."""

    USER = 1
    MIGRATION = 2
    SAVE = 3
    STARTING_UP = 11
    POSTCOPY = 12
    POSTCOPY_FAILED = 13


class Off(IntEnum):
    """virDomainShutoffReason."""

    UNKNOWN = 0
    SHUTDOWN = 1
    DESTROYED = 2
    CRASHED = 3
    MIGRATED = 4
    SAVED = 5
    FAILED = 6


LIFECYCLE = 0  # virDomainEventID
METADATA_CHANGE = 23


class Life(IntEnum):
    """virDomainEventType."""

    DEFINED = 0
    UNDEFINED = 1
    STARTED = 2
    SUSPENDED = 3
    RESUMED = 4
    STOPPED = 5
    SHUTDOWN = 6


class Stopped(IntEnum):
    """virDomainEventStoppedDetailType."""

    SHUTDOWN = 0
    DESTROYED = 1
    CRASHED = 2
    MIGRATED = 3
    SAVED = 4
    FAILED = 5


class Detail(IntEnum):
    """Details of the other lifecycle events, as they are called there."""

    ADDED = 0
    UPDATED = 1
    BOOTED = 0
    MIGRATED = 1
    RESTORED = 2
    PAUSED = 0
    PAUSED_RESTORED = 4
    RESUMED_POSTCOPY = 3
    PAUSED_POSTCOPY = 7
    PAUSED_POSTCOPY_FAILED = 8
    UNPAUSED = 0
    GUEST = 1
    HOST = 2


class Closed(IntEnum):
    """virConnectCloseReason."""

    ERROR = 0
    EOF = 1
    KEEPALIVE = 2


LIVE, CONFIG = 1, 2  # virDomainModificationImpact
METADATA_ELEMENT = 2
XML_SECURE, XML_INACTIVE = 1, 2
START_PAUSED = 1
SAVE_RUNNING, SAVE_PAUSED = 2, 4


class Migrate(IntEnum):
    """virDomainMigrateFlags."""

    LIVE = 1
    PEER2PEER = 2
    TUNNELLED = 4
    PERSIST_DEST = 8
    UNDEFINE_SOURCE = 16
    PAUSED = 32
    NON_SHARED_DISK = 64
    NON_SHARED_INC = 128
    UNSAFE = 512
    OFFLINE = 1024
    AUTO_CONVERGE = 1 << 13
    POSTCOPY = 1 << 15
    PARALLEL = 1 << 17
    POSTCOPY_RESUME = 1 << 19


MIGRATE_FLAGS = (1 << 21) - 1
ERROR_LEVEL = 2
LAST_ERROR = 110  # of libvirt 9.0


class libvirtError(Exception):
    """As the module's own: what failed, with libvirt's numbers."""

    def __init__(self, code: int, domain: int, message: str) -> None:
        super().__init__(message)
        self._code, self._domain = code, domain

    def get_error_code(self) -> int:
        """Return the error number (virErrorNumber)."""
        return self._code

    def get_error_domain(self) -> int:
        """Return the error's domain (virErrorDomain)."""
        return self._domain

    def get_error_level(self) -> int:
        """Return the error's level (virErrorLevel)."""
        return ERROR_LEVEL

    def get_error_message(self) -> str:
        """Return the error's text."""
        return str(self)


PREFIXES = {
    Err.INTERNAL_ERROR: "internal error: ",
    Err.OPERATION_FAILED: "operation failed: ",
    Err.OPERATION_INVALID: "Requested operation is not valid: ",
    Err.CONFIG_UNSUPPORTED: "unsupported configuration: ",
    Err.XML_ERROR: "XML error: ",
    Err.NO_DOMAIN: "Domain not found: ",
    Err.NO_NETWORK: "Network not found: ",
    Err.NO_NWFILTER: "Network filter not found: ",
    Err.NO_SECRET: "Secret not found: ",
    Err.CPU_INCOMPATIBLE: "the CPU is incompatible with host CPU: ",
    Err.NO_STORAGE_POOL: "Storage pool not found: ",
    Err.NO_STORAGE_VOL: "Storage volume not found: ",
    Err.OPERATION_ABORTED: "operation aborted: ",
    Err.OPERATION_TIMEOUT: "Timed out during operation: ",
    Err.OPERATION_UNSUPPORTED: "Operation not supported: ",
    Err.ARGUMENT_UNSUPPORTED: "argument unsupported: ",
    Err.NO_DOMAIN_METADATA: "metadata not found: ",
    Err.MIGRATE_UNSAFE: "Unsafe migration: ",
}


def error(code: int, domain: int, text: str) -> libvirtError:
    """Return a `libvirtError` with libvirt's text for its code."""
    prefix = PREFIXES.get(Err(code), "") if code in set(Err) else ""
    return libvirtError(int(code), int(domain), prefix + text)


def fail(code: int, domain: int, text: str) -> NoReturn:
    """Raise a `libvirtError`."""
    raise error(code, domain, text)


def check_flags(flags: int, allowed: int, function: str, domain: int = From.QEMU) -> None:
    """Raise as libvirt does for flags that a function does not have."""
    unknown = flags & ~allowed
    if unknown:
        fail(Err.INVALID_ARG, domain, f"unsupported flags (0x{unknown:x}) in function {function}")
