"""Numbers of libvirt's interface that the driver uses. They never change: they are part of libvirt's ABI."""

from __future__ import annotations

from enum import IntEnum, IntFlag, StrEnum


class DomainState(IntEnum):
    """virDomainState."""

    NOSTATE = 0
    RUNNING = 1
    BLOCKED = 2
    PAUSED = 3
    SHUTDOWN = 4
    SHUTOFF = 5
    CRASHED = 6
    PMSUSPENDED = 7


class PausedReason(IntEnum):
    """virDomainPausedReason, as far as it matters."""

    MIGRATION = 2
    STARTING_UP = 11
    POSTCOPY = 12
    POSTCOPY_FAILED = 13


class RunningReason(IntEnum):
    """virDomainRunningReason, as far as it matters."""

    POSTCOPY = 10
    POSTCOPY_FAILED = 11


class ShutoffReason(IntEnum):
    """virDomainShutoffReason."""

    UNKNOWN = 0
    SHUTDOWN = 1
    DESTROYED = 2
    CRASHED = 3
    MIGRATED = 4
    SAVED = 5
    FAILED = 6
    FROM_SNAPSHOT = 7
    DAEMON = 8


class EventId(IntEnum):
    """virDomainEventID, as far as they are registered."""

    LIFECYCLE = 0
    METADATA_CHANGE = 23


class Lifecycle(IntEnum):
    """virDomainEventType."""

    DEFINED = 0
    UNDEFINED = 1
    STARTED = 2
    SUSPENDED = 3
    RESUMED = 4
    STOPPED = 5
    SHUTDOWN = 6
    PMSUSPENDED = 7
    CRASHED = 8


class LifecycleEvent(IntEnum):
    """virDomainLifecycle, as far as it matters: when an action of the definition is taken."""

    POWEROFF = 0
    CRASH = 2


class LifecycleAction(StrEnum):
    """virDomainLifecycleAction, as definitions have it."""

    DESTROY = "destroy"
    RESTART = "restart"
    RENAME_RESTART = "rename-restart"
    PRESERVE = "preserve"
    COREDUMP_DESTROY = "coredump-destroy"
    COREDUMP_RESTART = "coredump-restart"

    @property
    def number(self) -> int:
        """Its number in libvirt's calls."""
        return tuple(LifecycleAction).index(self)


# Actions after which a guest runs again, with those that are the same but for that.
ENDING_ACTIONS = {
    LifecycleAction.RESTART: LifecycleAction.DESTROY,
    LifecycleAction.RENAME_RESTART: LifecycleAction.DESTROY,
    LifecycleAction.COREDUMP_RESTART: LifecycleAction.COREDUMP_DESTROY,
}


class JobOperation(IntEnum):
    """virDomainJobOperation."""

    UNKNOWN = 0
    START = 1
    SAVE = 2
    RESTORE = 3
    MIGRATION_IN = 4
    MIGRATION_OUT = 5
    SNAPSHOT = 6
    SNAPSHOT_REVERT = 7
    DUMP = 8
    BACKUP = 9
    SNAPSHOT_DELETE = 10


BASELINE_CPU_EXPAND_FEATURES = 1  # virConnectBaselineCPUFlags
LIST_ACTIVE = 2  # of virConnectListAllStoragePoolsFlags and virConnectListAllNetworksFlags
STARTED_MIGRATED = 1  # virDomainEventStartedDetailType
RESUMED_MIGRATED = 1  # virDomainEventResumedDetailType


class Stopped(IntEnum):
    """virDomainEventStoppedDetailType."""

    SHUTDOWN = 0
    DESTROYED = 1
    CRASHED = 2
    MIGRATED = 3
    SAVED = 4
    FAILED = 5
    FROM_SNAPSHOT = 6


class Affect(IntFlag):
    """virDomainModificationImpact."""

    CURRENT = 0
    LIVE = 1
    CONFIG = 2


class XmlFlag(IntFlag):
    """virDomainXMLFlags."""

    SECURE = 1
    INACTIVE = 2
    MIGRATABLE = 8


class Stats(IntFlag):
    """virDomainStatsTypes, and the flag by which a VM that is busy keeps nobody waiting."""

    STATE = 1
    CPU_TOTAL = 2
    BALLOON = 4
    VCPU = 8
    INTERFACE = 16
    BLOCK = 32
    DIRTYRATE = 512


STATS_NOWAIT = 1 << 29  # virConnectGetAllDomainStatsFlags
CREATE_PAUSED = 1  # virDomainCreateFlags
METADATA_ELEMENT = 2  # virDomainMetadataType
SAVE_RUNNING, SAVE_PAUSED = 2, 4  # virDomainSaveRestoreFlags
UNDEFINE_MANAGED_SAVE, UNDEFINE_SNAPSHOTS = 1, 2  # virDomainUndefineFlagsValues
UNDEFINE_NVRAM, UNDEFINE_KEEP_NVRAM = 4, 8
UNDEFINE_CHECKPOINTS, UNDEFINE_KEEP_TPM = 16, 64
JOB_STATS_COMPLETED = 1  # virDomainGetJobStatsFlags
DIRTY_RATE_MEASURING, DIRTY_RATE_MEASURED = 1, 2  # virDomainDirtyRateStatus
SAVE_IMAGE_XML_SECURE = 1  # virDomainSaveImageXMLFlags


class Migrate(IntFlag):
    """virDomainMigrateFlags."""

    LIVE = 1
    PEER2PEER = 2
    PERSIST_DEST = 8
    UNDEFINE_SOURCE = 16
    NON_SHARED_DISK = 64
    NON_SHARED_INC = 128
    UNSAFE = 512
    ABORT_ON_ERROR = 4096
    AUTO_CONVERGE = 8192
    POSTCOPY = 1 << 15
    TLS = 1 << 16
    PARALLEL = 1 << 17
    POSTCOPY_RESUME = 1 << 19


PARAM_URI = "migrate_uri"
PARAM_DEST_XML = "destination_xml"
PARAM_PERSIST_XML = "persistent_xml"
PARAM_BANDWIDTH = "bandwidth"
PARAM_BANDWIDTH_POSTCOPY = "bandwidth.postcopy"
PARAM_STREAMS = "parallel.connections"
PARAM_DISKS = "migrate_disks"


class Error(IntEnum):
    """virErrorNumber of libvirt 9.0, all of them."""

    OK = 0
    INTERNAL_ERROR = 1
    NO_MEMORY = 2
    NO_SUPPORT = 3
    UNKNOWN_HOST = 4
    NO_CONNECT = 5
    INVALID_CONN = 6
    INVALID_DOMAIN = 7
    INVALID_ARG = 8
    OPERATION_FAILED = 9
    GET_FAILED = 10
    POST_FAILED = 11
    HTTP_ERROR = 12
    SEXPR_SERIAL = 13
    NO_XEN = 14
    XEN_CALL = 15
    OS_TYPE = 16
    NO_KERNEL = 17
    NO_ROOT = 18
    NO_SOURCE = 19
    NO_TARGET = 20
    NO_NAME = 21
    NO_OS = 22
    NO_DEVICE = 23
    NO_XENSTORE = 24
    DRIVER_FULL = 25
    CALL_FAILED = 26
    XML_ERROR = 27
    DOM_EXIST = 28
    OPERATION_DENIED = 29
    OPEN_FAILED = 30
    READ_FAILED = 31
    PARSE_FAILED = 32
    CONF_SYNTAX = 33
    WRITE_FAILED = 34
    XML_DETAIL = 35
    INVALID_NETWORK = 36
    NETWORK_EXIST = 37
    SYSTEM_ERROR = 38
    RPC = 39
    GNUTLS_ERROR = 40
    NO_DOMAIN = 42
    NO_NETWORK = 43
    INVALID_MAC = 44
    AUTH_FAILED = 45
    INVALID_STORAGE_POOL = 46
    INVALID_STORAGE_VOL = 47
    NO_STORAGE_POOL = 49
    NO_STORAGE_VOL = 50
    INVALID_NODE_DEVICE = 52
    NO_NODE_DEVICE = 53
    NO_SECURITY_MODEL = 54
    OPERATION_INVALID = 55
    NO_INTERFACE = 57
    INVALID_INTERFACE = 58
    MULTIPLE_INTERFACES = 59
    INVALID_NWFILTER = 61
    NO_NWFILTER = 62
    BUILD_FIREWALL = 63
    INVALID_SECRET = 65
    NO_SECRET = 66
    CONFIG_UNSUPPORTED = 67
    OPERATION_TIMEOUT = 68
    MIGRATE_PERSIST_FAILED = 69
    HOOK_SCRIPT_FAILED = 70
    INVALID_DOMAIN_SNAPSHOT = 71
    NO_DOMAIN_SNAPSHOT = 72
    INVALID_STREAM = 73
    ARGUMENT_UNSUPPORTED = 74
    STORAGE_PROBE_FAILED = 75
    STORAGE_POOL_BUILT = 76
    SNAPSHOT_REVERT_RISKY = 77
    OPERATION_ABORTED = 78
    AUTH_CANCELLED = 79
    NO_DOMAIN_METADATA = 80
    MIGRATE_UNSAFE = 81
    OVERFLOW = 82
    BLOCK_COPY_ACTIVE = 83
    OPERATION_UNSUPPORTED = 84
    SSH = 85
    AGENT_UNRESPONSIVE = 86
    RESOURCE_BUSY = 87
    ACCESS_DENIED = 88
    DBUS_SERVICE = 89
    STORAGE_VOL_EXIST = 90
    CPU_INCOMPATIBLE = 91
    XML_INVALID_SCHEMA = 92
    MIGRATE_FINISH_OK = 93
    AUTH_UNAVAILABLE = 94
    NO_SERVER = 95
    NO_CLIENT = 96
    AGENT_UNSYNCED = 97
    LIBSSH = 98
    DEVICE_MISSING = 99
    INVALID_NWFILTER_BINDING = 100
    NO_NWFILTER_BINDING = 101
    INVALID_DOMAIN_CHECKPOINT = 102
    NO_DOMAIN_CHECKPOINT = 103
    NO_DOMAIN_BACKUP = 104
    INVALID_NETWORK_PORT = 105
    NETWORK_PORT_EXIST = 106
    NO_NETWORK_PORT = 107
    NO_HOSTNAME = 108
    CHECKPOINT_INCONSISTENT = 109
    MULTIPLE_DOMAINS = 110
