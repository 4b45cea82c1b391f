"""virDomain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim_backend.fake_libvirt import codes, definition, migration
from sim_backend.fake_libvirt.codes import (
    CONFIG,
    LIVE,
    Detail,
    Err,
    From,
    Life,
    Off,
    Paused,
    RunningReason,
    State,
    Stopped,
    check_flags,
    fail,
)
from sim_backend.fake_libvirt.definition import Definition
from sim_backend.fake_libvirt.files import Image, partial
from sim_backend.fake_libvirt.handles import Connection, Handle, call
from sim_backend.fake_libvirt.refusals import check_pools, check_source
from sim_backend.fake_libvirt.state import Dom

QUOTA_RANGE = (1_000, 17_592_186_044_415)
PERIOD_RANGE = (1_000, 1_000_000)
TUNES = {"cpu_shares": "shares", "vcpu_quota": "quota", "vcpu_period": "period"}
LIFECYCLES = {0: "poweroff", 1: "reboot", 2: "crash"}  # virDomainLifecycle
LIFECYCLE_ACTIONS = ("destroy", "restart", "rename-restart", "preserve", "coredump-destroy", "coredump-restart")
NOT_RUNNING = "domain is not running"
SOMEBODYS = {"backup": 9, "snapshot": 6, "dump": 8}  # virDomainJobOperation
SNAPSHOTS_METADATA, NVRAM, KEEP_NVRAM, CHECKPOINTS_METADATA = 2, 4, 8, 16  # virDomainUndefineFlagsValues
TPM, KEEP_TPM = 32, 64


class virDomain(Handle):
    """A handle: the domain may be gone."""

    def __init__(self, connection: Connection, uuid: str, name: str) -> None:
        self._connection, self._uuid, self._name = connection, uuid, name
        self.subject = name

    @property
    def home_connection(self) -> Connection:
        """The connection that it was got from."""
        return self._connection

    def name(self) -> str:
        return self._name

    def UUIDString(self) -> str:
        return self._uuid

    # --- looking ----------------------------------------------------------------------------------------------------

    @call
    def isActive(self) -> int:
        return int(self._dom().live is not None)

    @call
    def isPersistent(self) -> int:
        return int(self._dom().config is not None)

    @call
    def state(self, flags: int = 0) -> list[int]:
        check_flags(flags, 0, "qemuDomainGetState")
        dom = self._dom()
        return [int(dom.state), int(dom.reason)]

    @call
    def info(self) -> list[int]:
        dom = self._dom()
        kib = dom.definition.memory_kib
        return [int(dom.state), kib, kib, dom.definition.vcpus, int(dom.cpu_s * 1e9)]

    @call
    def XMLDesc(self, flags: int = 0) -> str:
        check_flags(flags, 0xF, "qemuDomainGetXMLDesc")
        dom = self._dom()
        secrets = bool(flags & codes.XML_SECURE)
        if flags & codes.XML_INACTIVE and dom.config is not None:
            return dom.config.text(secrets=secrets)
        return dom.definition.text(dom.number, secrets)

    @call
    def metadata(self, type: int, uri: str | None, flags: int = 0) -> str:
        definition.check_metadata(type, None, None, uri)
        found = self._affected(flags, live_too=True)[0].metadata(uri or "")
        if found is None:
            fail(Err.NO_DOMAIN_METADATA, From.DOMAIN, "Requested metadata element is not present")
        return found

    # --- its life ---------------------------------------------------------------------------------------------------

    @call
    def create(self) -> int:
        return self._create(0)

    @call
    def createWithFlags(self, flags: int = 0) -> int:
        return self._create(flags)

    def _create(self, flags: int) -> int:
        check_flags(flags, 0x3F, "qemuDomainCreateWithFlags")
        dom, host = self._free(), self._connection.host
        if dom.live is not None:
            fail(Err.OPERATION_INVALID, From.QEMU, "domain is already running")
        assert dom.config is not None
        host.occupy(dom, dom.config, None)
        job = host.cluster.work(host, dom, "create")
        host.check_started(dom, job)
        if flags & codes.START_PAUSED:
            host.emit(dom, Life.STARTED, Detail.BOOTED)
            host.pause(dom, Paused.USER)
        else:
            host.emit(dom, Life.RESUMED, Detail.UNPAUSED)
            host.emit(dom, Life.STARTED, Detail.BOOTED)
            host.run(dom, RunningReason.BOOTED)
        return 0

    @call
    def suspend(self) -> int:
        dom = self._active()
        if dom.job is not None and dom.job.kind != "migrate":
            self._connection.cluster.wait_for_job(self._connection.host, dom)
            dom = self._active()
        if dom.state != State.PAUSED:
            self._connection.host.pause(dom, Paused.USER)
        return 0

    @call
    def resume(self) -> int:
        self._active()
        self._free()
        dom = self._active()
        if dom.state == State.RUNNING:
            fail(Err.OPERATION_INVALID, From.QEMU, "domain is already running")
        if dom.halted is not None:
            fail(Err.OPERATION_INVALID, From.QEMU, "domain is in a failed post-copy migration")
        self._connection.host.resume(dom, RunningReason.UNPAUSED)
        return 0

    @call
    def shutdown(self) -> int:
        return self._shutdown(0)

    @call
    def shutdownFlags(self, flags: int = 0) -> int:
        return self._shutdown(flags)

    def _shutdown(self, flags: int) -> int:
        check_flags(flags, 0x1F, "qemuDomainShutdownFlags")
        self._free()
        if self._dom().live is None:
            fail(Err.OPERATION_INVALID, From.QEMU, NOT_RUNNING)
        self._connection.host.ask_to_end(self._dom())
        return 0

    @call
    def destroy(self) -> int:
        self._connection.host.destroy(self._active())
        return 0

    @call
    def destroyFlags(self, flags: int = 0) -> int:
        check_flags(flags, 3, "qemuDomainDestroyFlags")
        self._connection.host.destroy(self._active())
        return 0

    @call
    def undefine(self) -> int:
        return self._undefine(0)

    @call
    def undefineFlags(self, flags: int = 0) -> int:
        return self._undefine(flags)

    def _undefine(self, flags: int) -> int:
        check_flags(flags, 0x7F, "qemuDomainUndefineFlags")
        dom = self._free()
        if dom.config is None:
            fail(Err.OPERATION_INVALID, From.QEMU, "cannot undefine transient domain")
        if flags & TPM and flags & KEEP_TPM:
            text = "Flags 'VIR_DOMAIN_UNDEFINE_TPM' and 'VIR_DOMAIN_UNDEFINE_KEEP_TPM' are mutually exclusive"
            fail(Err.INVALID_ARG, From.DOMAIN, text)
        for count, flag, what in (
            (dom.snapshots, SNAPSHOTS_METADATA, "snapshots"),
            (dom.checkpoints, CHECKPOINTS_METADATA, "checkpoints"),
        ):
            if count and dom.live is None and not flags & flag:
                fail(Err.OPERATION_INVALID, From.QEMU, f"cannot delete inactive domain with {count} {what}")
        self._remove_nvram(dom, flags)
        if dom.definition.has_tpm and not flags & KEEP_TPM:
            self._connection.host.files.remove(dom.tpm_state)
        self._connection.host.undefine(dom)
        return 0

    def _remove_nvram(self, dom: Dom, flags: int) -> None:
        """Remove the firmware's variables, or keep them; without either flag the definition stays."""
        files, path = self._connection.host.files, dom.definition.nvram
        if not path or files.get(path) is None or flags & KEEP_NVRAM:
            return
        if not flags & NVRAM:
            fail(Err.OPERATION_INVALID, From.QEMU, "cannot undefine domain with nvram")
        files.remove(path)

    # --- what takes time --------------------------------------------------------------------------------------------

    @call
    def save(self, to: str) -> int:
        return self._save(to, None, 0)

    @call
    def saveFlags(self, to: str, dxml: str | None = None, flags: int = 0) -> int:
        return self._save(to, dxml, flags)

    def _save(self, to: str, dxml: str | None, flags: int) -> int:
        check_flags(flags, 1 | codes.SAVE_RUNNING | codes.SAVE_PAUSED, "qemuDomainSaveFlags")
        if flags & codes.SAVE_RUNNING and flags & codes.SAVE_PAUSED:
            text = "Flags 'VIR_DOMAIN_SAVE_RUNNING' and 'VIR_DOMAIN_SAVE_PAUSED' are mutually exclusive"
            fail(Err.INVALID_ARG, From.DOMAIN, text)
        self._active()
        self._free()
        dom, host = self._active(), self._connection.host
        was_running = dom.state == State.RUNNING
        saved = dom.definition if dxml is None else definition.parse(dxml, host.cluster.new_uuid())
        if saved.name != dom.name:
            fail(Err.CONFIG_UNSUPPORTED, From.DOMAIN, f"Target domain name '{saved.name}' does not match source")
        if was_running:
            host.pause(dom, Paused.SAVE)
        if to.rpartition("/")[0] not in host.files.folders:
            self._take_back(dom, was_running)
            fail(Err.SYSTEM_ERROR, From.QEMU, f"Failed to create file '{to}': No such file or directory")
        host.files.put(to, partial())
        written = host.files.get(to)
        xml = saved.text()
        job = host.cluster.work(host, dom, "save")
        if job.error is not None:
            if not job.orphan:
                host.files.remove(to)
                self._take_back(dom, was_running)
            raise job.error
        assert dom.guest is not None
        running = was_running if not flags & 6 else bool(flags & codes.SAVE_RUNNING)
        if written is not None and host.files.get(to) is written:  # else what is written was removed meanwhile
            written[:] = Image(xml, running, dom.guest.work_s, dom.guest.token).data()
        host.halt(dom, Off.SAVED, Stopped.SAVED)
        return 0

    def _take_back(self, dom: Dom, was_running: bool) -> None:
        if was_running and dom.live is not None:
            self._connection.host.resume(dom, RunningReason.SAVE_CANCELED)

    @call
    def migrateToURI3(self, dconnuri: str | None, params: Mapping[str, Any], flags: int = 0) -> int:
        migration.check(params, flags)
        self._active()
        self._free()
        self._check_migratable(dconnuri or "")
        return migration.migrate(self._connection.host, self._active(), dconnuri or "", params, flags)

    def _check_migratable(self, uri: str) -> None:
        host, found = self._connection.host, migration.PEER_URI.fullmatch(uri)
        there = host if found is None else host.cluster.reach(host.name, found["host"])
        check_source(self._active(), host.cpu_model, there.cpu_model)
        check_pools(self._active(), host.pools, there.pools)

    @call
    def migrateSetMaxDowntime(self, downtime: int, flags: int = 0) -> int:
        check_flags(flags, 0, "qemuDomainMigrateSetMaxDowntime")
        self._active().max_downtime_ms = downtime
        return 0

    @call
    def migrateStartPostCopy(self, flags: int = 0) -> int:
        check_flags(flags, 0, "qemuDomainMigrateStartPostCopy")
        migration.start_post_copy(self._connection.host, self._active())
        return 0

    @call
    def jobStats(self, flags: int = 0) -> dict[str, Any]:
        check_flags(flags, 3, "qemuDomainGetJobStats")
        dom = self._dom()
        if dom.jobs and dom.job is None and not flags:
            return {"type": 2, "operation": SOMEBODYS[dom.jobs[0]]}
        return migration.job_stats(dom, flags, self._connection.cluster.now_s())

    @call
    def startDirtyRateCalc(self, seconds: int, flags: int = 0) -> int:
        check_flags(flags, 7, "qemuDomainStartDirtyRateCalc")
        if not 1 <= seconds <= 60:
            text = f"seconds={seconds} is invalid, please choose value within [1, 60]."
            fail(Err.INVALID_ARG, From.QEMU, text)
        self._free()
        migration.measure_dirty_rate(self._active(), seconds, self._connection.cluster.now_s())
        return 0

    @call
    def abortJob(self) -> int:
        dom = self._active()
        if dom.job is None or dom.job.incoming:
            fail(Err.OPERATION_INVALID, From.QEMU, "no job is active on the domain")
        if dom.job.transfer is not None and dom.job.transfer.switched:
            fail(Err.OPERATION_INVALID, From.QEMU, "cannot abort migration in post-copy mode")
        text = "migration out: canceled by client" if dom.job.peer else f"job '{dom.job.kind}' canceled by client"
        dom.job.error = dom.job.error or codes.error(Err.OPERATION_ABORTED, From.QEMU, text)
        self._connection.cluster.changed()
        return 0

    @call
    def jobInfo(self) -> list[int]:
        dom = self._active()
        job = dom.job
        if job is None:
            return [2 if dom.jobs else 0] + [0] * 11
        if job.incoming:
            text = "migration statistics are available only on the source host"
            fail(Err.OPERATION_UNSUPPORTED, From.QEMU, text)
        elapsed_ms = int((self._connection.cluster.now_s() - job.begun_s) * 1e3)
        return [2, elapsed_ms, *[0] * 10]

    @call
    def blockJobInfo(self, disk: str, flags: int = 0) -> dict[str, int]:
        check_flags(flags, 1, "qemuDomainGetBlockJobInfo")
        return {"type": 2, "bandwidth": 0, "cur": 1, "end": 2} if disk in self._active().block_jobs else {}

    @call
    def autostart(self) -> int:
        return int(self._dom().autostart)

    @call
    def setAutostart(self, autostart: int) -> int:
        dom = self._dom()
        if dom.config is None:
            fail(Err.OPERATION_INVALID, From.QEMU, "cannot set autostart for transient domain")
        dom.autostart = bool(autostart)
        return 0

    @call
    def snapshotNum(self, flags: int = 0) -> int:
        check_flags(flags, 0xFFF, "qemuDomainSnapshotNum")
        return self._dom().snapshots

    @call
    def listAllCheckpoints(self, flags: int = 0) -> list[str]:
        check_flags(flags, 0x3F, "qemuDomainListAllCheckpoints")
        return [str(number) for number in range(self._dom().checkpoints)]

    # --- changing it ------------------------------------------------------------------------------------------------

    @call
    def setMetadata(self, type: int, metadata: str | None, key: str | None, uri: str | None, flags: int = 0) -> int:
        definition.check_metadata(type, metadata, key, uri)
        check_flags(flags, 3, "qemuDomainSetMetadata")
        dom = self._free()
        for each in self._affected(flags):
            each.set_metadata(metadata, key, uri)
        self._connection.host.emit_metadata(dom, type, uri)
        return 0

    @call
    def setLifecycleAction(self, type: int, action: int, flags: int = 0) -> int:
        check_flags(flags, 3, "qemuDomainSetLifecycleAction")
        if type not in LIFECYCLES or action not in range(len(LIFECYCLE_ACTIONS)):
            fail(Err.INVALID_ARG, From.DOMAIN, f"invalid argument: Invalid lifecycle action {action} of {type}")
        event, wanted = LIFECYCLES[type], LIFECYCLE_ACTIONS[action]
        if wanted.startswith("coredump") and event != "crash":
            fail(Err.INVALID_ARG, From.DOMAIN, f"invalid argument: '{wanted}' is not allowed for 'on_{event}'")
        if wanted == "rename-restart":
            fail(Err.CONFIG_UNSUPPORTED, From.QEMU, "qemu driver doesn't support the 'rename-restart' action")
        dom = self._free()
        for each in self._affected(flags):
            if each is dom.live and not dom.may_reboot:
                text = "cannot update lifecycle action because QEMU was started with -no-reboot option"
                fail(Err.OPERATION_UNSUPPORTED, From.QEMU, text)
            each.set_end_action(event, wanted)
        return 0

    @call
    def schedulerType(self) -> tuple[str, int]:
        self._dom()
        return ("posix", 9)

    @call
    def schedulerParametersFlags(self, flags: int = 0) -> dict[str, int]:
        found = self._affected(flags, live_too=True)[0]
        return {name: found.tune(key) or 0 for name, key in TUNES.items()}

    @call
    def setSchedulerParameters(self, params: Mapping[str, int]) -> int:
        return self._schedule(params, 0)

    @call
    def setSchedulerParametersFlags(self, params: Mapping[str, int], flags: int = 0) -> int:
        return self._schedule(params, flags)

    def _schedule(self, params: Mapping[str, int], flags: int) -> int:
        check_flags(flags, 3, "qemuDomainGetSchedulerParametersFlags")
        if flags & LIVE and flags & CONFIG:
            text = "Flags 'VIR_DOMAIN_AFFECT_LIVE' and 'VIR_DOMAIN_AFFECT_CONFIG' are mutually exclusive"
            fail(Err.INVALID_ARG, From.DOMAIN, text)
        _check_tunes(params)
        dom = self._free()
        for each in self._affected(flags):
            shares = params.get("cpu_shares")
            if each is dom.live and shares is not None and shares not in definition.SHARES:
                fail(Err.INVALID_ARG, From.CGROUP, f"invalid argument: shares '{shares}' must be in range [2, 262144]")
            for name, value in params.items():
                each.set_tune(TUNES[name], value)
        return 0

    # --- inside -----------------------------------------------------------------------------------------------------

    def _dom(self) -> Dom:
        dom = self._connection.host.domains.get(self._uuid)
        if dom is None:
            fail(Err.NO_DOMAIN, From.QEMU, f"no domain with matching uuid '{self._uuid}' ({self._name})")
        return dom

    def _active(self) -> Dom:
        dom = self._dom()
        if dom.live is None:
            fail(Err.OPERATION_INVALID, From.DOMAIN, NOT_RUNNING)
        return dom

    def _free(self) -> Dom:
        """Once no job is on it."""
        dom = self._dom()
        if dom.job is not None:
            self._connection.cluster.wait_for_job(self._connection.host, dom)
        return dom

    def _affected(self, flags: int, live_too: bool = False) -> list[Definition]:
        """Return the definitions that a change applies to, first the one that a query reads."""
        dom = self._dom()
        if flags & LIVE and dom.live is None:
            fail(Err.OPERATION_INVALID, From.DOMAIN, NOT_RUNNING)
        if flags & CONFIG and dom.config is None:
            fail(Err.OPERATION_INVALID, From.DOMAIN, "transient domains do not have any persistent config")
        if not flags & (LIVE | CONFIG):
            return [dom.definition]
        if live_too and flags & LIVE and flags & CONFIG:
            fail(Err.INVALID_ARG, From.DOMAIN, "Flags 'LIVE' and 'CONFIG' are mutually exclusive")
        wanted = [dom.live if flags & LIVE else None, dom.config if flags & CONFIG else None]
        return [each for each in wanted if each is not None]


def _check_tunes(params: Mapping[str, int]) -> None:
    for name, value in params.items():
        if name not in TUNES:
            raise LookupError(f'Attribute name "{name}" could not be recognized')
        if not isinstance(value, int):
            raise TypeError("an integer is required")
        lowest, most = {"vcpu_quota": QUOTA_RANGE, "vcpu_period": PERIOD_RANGE}.get(name, (0, 1 << 64))
        if not (lowest <= value <= most or (name == "vcpu_quota" and value in (0, -1))):
            text = f"invalid argument: value of '{name}' is out of range [{lowest}, {most}]"
            fail(Err.INVALID_ARG, From.QEMU, text)
