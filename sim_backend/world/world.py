"""The world: what is really true, apart from what anyone believes (true work, true speeds, who runs where).

No randomness in here: callers draw the noise and hand in true values. Time is given with every call and never goes
back; call `advance` up to `now_s` before changing anything at `now_s`, so that what ended by then has ended.

Shares of CPU follow the rule of the real hosts: weighted max-min with caps (`sharing`). Progress is kept as
(done, since, rate) and only touched when a rate changes, so that times are exact however often they are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from shared.base.errors import ContractViolation, InvalidValue
from shared.values.jobs import INSTANCE_SEPARATOR
from shared.values.nodes import Node
from sim_backend.world.cpu_sharing import shares
from sim_backend.world.disks import SERVERS_MAX
from sim_backend.world.entities import Guest, Host, Task, task_of

STALE_MIN = 256  # heap entries that may be out of date before the heap is rebuilt


class World:
    """Hosts, guests and tasks. `completions[task]` lists (attempt, at_s) of every time the task finished."""

    def __init__(self) -> None:
        self.completions: dict[str, list[tuple[int, float]]] = {}
        self._hosts: dict[str, Host] = {}
        self._guests: dict[str, Guest] = {}
        self._tasks: dict[str, Task] = {}
        self._heap: list[tuple[float, str, int, Task]] = []  # one valid entry per task that makes progress
        self._stale = 0
        self._now_s = 0.0  # of the change that is being made
        self._dirty: dict[Task, None] = {}  # tasks some of whose shares changed, in the order of the change
        self._disks: dict[Host, None] = {}  # hosts on which something changed for those that use the disk

    # --- hosts ---------------------------------------------------------------------------------------------------

    def add_host(self, node: Node, speed_factor: float = 1.0, disk_servers: int = 1) -> None:
        """Add a host that truly runs at `core_mhz` x `speed_factor` (> 0) and whose disk serves `disk_servers` requests
        at a time at full speed. Raises ContractViolation when it exists."""
        if node.name in self._hosts:
            raise ContractViolation(f"host {node.name} is there already")
        if not (math.isfinite(speed_factor) and speed_factor > 0):
            raise InvalidValue("speed_factor", speed_factor, "a finite number above 0")
        if not 1 <= disk_servers <= SERVERS_MAX:
            raise InvalidValue("disk_servers", disk_servers, f"1 to {SERVERS_MAX}")
        self._hosts[node.name] = Host(node.name, node.cores, node.core_mhz * speed_factor, disk_servers)

    def host_dies(self, name: str, now_s: float) -> list[str]:
        """Stop a host and remove its guests. Return their names in order of placement."""
        host = self._host(name)
        host.up = False
        gone = list(host.guests)
        for vm in gone:
            self.remove(vm, now_s)
        return gone

    def host_returns(self, name: str) -> None:
        """Bring a dead host up again, empty."""
        self._host(name).up = True

    def memory_used_mib(self, host: str) -> float:
        """Memory of the guests on a host."""
        return self._host(host).memory_mib

    def standing(self, host: str) -> tuple[float, float, list[float], int]:
        """True MHz of a core and of all; what guests load the disk with now, and how many it serves at a time."""
        home = self._host(host)
        return home.core_mhz, home.capacity_mhz, [] if home.disk is None else home.disk.parts(), home.disk_servers

    def used_frac(self, host: str) -> float:
        """Return the fraction of a host's CPU that its guests use now."""
        home = self._host(host)
        return min(1.0, math.fsum(guest.used_mhz for guest in home.guests.values()) / home.capacity_mhz)

    def host_disk_s(self, host: str, now_s: float) -> tuple[float, float]:
        """Return the seconds for which any guest used the disk of a host, and the seconds of service that guests
        received there."""
        disk = self._host(host).disk
        return (0.0, 0.0) if disk is None else (disk.busy_s(now_s), disk.served_s(now_s))

    # --- tasks ---------------------------------------------------------------------------------------------------

    def add_task(
        self,
        name: str,
        stages: Sequence[tuple[float, float]],
        instances: int,
        checkpoint_mcycles: float = 0.0,
        io: float = 0.0,
    ) -> None:
        """Add a task of `instances` coupled guests. `stages` are true (work_mcycles per instance, max_mhz); `io`: the
        fraction of its time alone at full speed for which each uses its host's disk.

        Raises InvalidValue for work that is not finite and >= 0, a speed that is not above 0 (inf: no limit), no stages
        or no instances, a fraction outside 0..1; ContractViolation when the name is taken.
        """
        if name in self._tasks:
            raise ContractViolation(f"task {name} is there already")
        self._tasks[name] = task_of(name, stages, instances, checkpoint_mcycles, io)
        self.completions[name] = []

    def done_mcycles(self, task: str, now_s: float) -> float:
        """Return the work done per instance of a task, up to its total. Raises KeyError for an unknown task."""
        return self._tasks[task].done_at(now_s)

    # --- guests --------------------------------------------------------------------------------------------------

    def place(
        self,
        vm: str,
        host: str,
        now_s: float,
        weight_mhz: float,
        cap_mhz: float,
        vcpus: int,
        memory_mib: float,
        attempt: int = 1,
        running: bool = True,
    ) -> None:
        """Start a guest on `host`, new or from an image; `cap_mhz` is inf for none.

        A higher attempt than its task's, or the same after the task has finished, resets the task to its last
        checkpoint. A guest of an older attempt or of no known task is idle. Raises ContractViolation when the guest is
        already alive anywhere or the host is not up: a guest must never run twice.
        """
        home = self._up(host)
        self._now_s = now_s
        if vm in self._guests:
            raise ContractViolation(f"{vm} is alive on {self._guests[vm].host.name}, cannot be placed on {host}")
        guest = Guest(vm, home, weight_mhz, cap_mhz, vcpus, memory_mib, running)
        self._guests[vm] = home.guests[vm] = guest
        home.memory_mib += memory_mib
        name, _, index = vm.rpartition(INSTANCE_SEPARATOR)
        task = self._tasks.get(name)
        if task is None or attempt < task.attempt or not index.isdigit() or int(index) >= task.instances:
            return
        if attempt > task.attempt or task.ended:
            self._set_back(task, attempt, now_s)
        guest.task, guest.index, guest.attempt = task, int(index), attempt
        guest.base_mcycles = task.done_mcycles  # exact: without this member the task stands still
        task.members[vm] = guest
        if task.io:
            home.join_disk(guest, now_s)
        if running:
            self._start(guest, task, now_s)

    def set_running(self, vm: str, running: bool, now_s: float) -> None:
        """Let a guest execute, or stop it from executing. KeyError when it is not alive."""
        guest = self._guests[vm]
        if guest.running == running:
            return
        guest.running, self._now_s = running, now_s
        if guest.task is None:
            self._ask(guest)
        elif running:
            self._start(guest, guest.task, now_s)
        else:
            self._stop(guest, guest.task, now_s)

    def set_weight(self, vm: str, weight_mhz: float, cap_mhz: float, now_s: float) -> None:
        """Change a guest's weight and cap (inf for none). KeyError when it is not alive."""
        guest = self._guests[vm]
        guest.weight_mhz, guest.cap_mhz, self._now_s = weight_mhz, cap_mhz, now_s
        if guest.task is None:
            self._ask(guest)
        elif guest.running:
            self._demand(guest, guest.task.max_mhz[guest.task.stage])
            self._rerate(guest.task, now_s)
            self._flush(now_s)

    def move(self, vm: str, host: str, now_s: float) -> None:
        """Move a guest to another host in its current state and reset its counters. Raises the errors of `place`;
        KeyError if not alive."""
        guest, target = self._guests[vm], self._up(host)
        self._now_s = now_s
        self._leave(guest)
        guest.host = target
        target.guests[vm] = guest
        target.memory_mib += guest.memory_mib
        task = guest.task
        if task is None:
            guest.carried_mcycles += guest.executed_mcycles
            guest.executed_mcycles = 0.0
            self._ask(guest)
            return
        guest.executed_mcycles = 0.0
        guest.base_mcycles = task.done_at(now_s)
        if task.io:
            target.join_disk(guest, now_s)
        if guest.running:
            self._demand(guest, task.max_mhz[task.stage])
            self._rerate(task, now_s)
            self._flush(now_s)

    def remove(self, vm: str, now_s: float) -> None:
        """Remove a guest. Raises KeyError when it is not alive."""
        guest = self._guests.pop(vm)
        self._now_s = now_s
        task = guest.task
        if task is not None:
            if guest.running:
                self._stop(guest, task, now_s)
            del task.members[vm]
        self._leave(guest)
        if self._dirty or self._disks:
            self._flush(now_s)

    def where(self, vm: str) -> str | None:
        """Return the host of a guest, None when it is not alive."""
        guest = self._guests.get(vm)
        return None if guest is None else guest.host.name

    def cpu_time_s(self, vm: str, now_s: float) -> float:
        """Return the CPU seconds that a guest has used since it came to this host: work executed here / true core
        MHz."""
        guest = self._guests[vm]
        return guest.executed_at(now_s) / guest.host.core_mhz

    def disk_s(self, vm: str, now_s: float) -> tuple[float, float]:
        """Return the seconds for which a guest has waited for its disk requests since it came to this host, and those
        for which they were served."""
        guest = self._guests[vm]
        return (0.0, 0.0) if guest.disk is None else guest.disk.at(guest.executed_at(now_s))

    def share_mhz(self, vm: str) -> float:
        """Return a guest's current CPU in true MHz (0 when it is idle or not executing). Raises KeyError when not
        alive."""
        return self._guests[vm].share_mhz

    # --- guests without a task --------------------------------------------------------------------------------------

    def ask(self, vm: str, wants_mhz: float, now_s: float) -> None:
        """Set the CPU that a guest without a task requests from now on, in true MHz (>= 0). Raises KeyError when it is
        not alive, ContractViolation when it has a task."""
        guest = self._guests[vm]
        if guest.task is not None:
            raise ContractViolation(f"{vm} works on {guest.task.name}")
        guest.wants_mhz, self._now_s = wants_mhz, now_s
        self._ask(guest)

    def executing(self, prefix: str) -> list[str]:
        """Return the guests that are alive and not paused whose names start with `prefix`, in order of placement."""
        return [vm for vm, guest in self._guests.items() if guest.running and vm.startswith(prefix)]

    def done_without_task_mcycles(self, vm: str, now_s: float) -> float:
        """Return the work that a guest has done without a task since it started, on all hosts. Raises KeyError when it
        is not alive."""
        guest = self._guests[vm]
        return guest.carried_mcycles + guest.executed_at(now_s)

    def core_mhz(self, vm: str) -> float:
        """Return the true speed of one core of a guest's host. Raises KeyError when it is not alive."""
        return self._guests[vm].host.core_mhz

    def available_mhz(self, vm: str) -> float:
        """Return the CPU that a guest would get now if it requested all that it can use; 0 when it is paused. Raises
        KeyError when it is not alive."""
        guest = self._guests[vm]
        if not guest.running:
            return 0.0
        host, ceiling_mhz = guest.host, guest.ceiling_mhz
        if host.demand_mhz - guest.demand_mhz + ceiling_mhz <= host.limit_mhz:
            return ceiling_mhz
        active = [other for other in host.guests.values() if other.demand_mhz > 0.0 and other is not guest]
        weights = [other.weight_mhz for other in active]
        caps = [other.demand_mhz for other in active]
        return shares([*weights, guest.weight_mhz], [*caps, ceiling_mhz], host.capacity_mhz)[-1]

    # --- time ----------------------------------------------------------------------------------------------------

    def next_end_s(self) -> float | None:
        """Return the time at which a task next finishes or enters its next stage at current speeds; None when none
        makes progress."""
        heap = self._heap
        while heap:
            at_s, _, version, task = heap[0]
            if version == task.version:
                return at_s
            heappop(heap)
            self._stale -= 1
        return None

    def advance(self, now_s: float) -> list[str]:
        """Let time pass. Returns the guests whose task finished by `now_s`, by (time, task, index); they stay,
        without any demand, until removed."""
        heap = self._heap
        over: list[str] = []
        while heap and heap[0][0] <= now_s:
            at_s, _, version, task = heappop(heap)
            self._now_s = at_s
            if version != task.version:
                self._stale -= 1
            elif task.stage + 1 < len(task.targets_mcycles):
                self._next_stage(task, at_s)
            else:
                self._finish(task, at_s, over)
            if self._dirty or self._disks:
                self._flush(at_s)
        return over

    # --- inside --------------------------------------------------------------------------------------------------

    def _host(self, name: str) -> Host:
        host = self._hosts.get(name)
        if host is None:
            raise ContractViolation(f"no host {name}")
        return host

    def _up(self, name: str) -> Host:
        host = self._hosts.get(name)
        if host is None or not host.up:
            raise ContractViolation(f"host {name} is not up")
        return host

    def _start(self, guest: Guest, task: Task, now_s: float) -> None:
        task.executing += 1
        self._demand(guest, task.max_mhz[task.stage])
        if task.executing == task.instances:
            self._touch(task)
            self._rerate(task, now_s)
        if self._dirty or self._disks:
            self._flush(now_s)

    def _stop(self, guest: Guest, task: Task, now_s: float) -> None:
        whole = task.executing == task.instances
        task.executing -= 1
        if whole:
            self._touch(task)
            self._rerate(task, now_s)
        self._no_demand(guest)
        if self._dirty or self._disks:
            self._flush(now_s)

    def _touch(self, task: Task) -> None:
        """Mark the disks of a task's guests for recomputation because the task starts or stops working."""
        if task.io:
            self._disks.update((guest.host, None) for guest in task.members.values())

    def _leave(self, guest: Guest) -> None:
        host = guest.host
        del host.guests[guest.vm]
        if host.disk is not None and guest.disk is not None:
            host.disk.leave(guest, self._now_s)
            self._disks[host] = None
        if guest.demand_mhz:
            self._no_demand(guest)
        if host.guests:
            host.memory_mib -= guest.memory_mib
        else:  # what rounding left over goes too
            host.memory_mib = host.demand_mhz = 0.0

    def _ask(self, guest: Guest) -> None:
        """Let a guest without a task have what it wants, as far as there is CPU."""
        if guest.running and guest.wants_mhz > 0.0:
            self._demand(guest, guest.wants_mhz)
        elif guest.demand_mhz:
            self._no_demand(guest)
        if self._dirty:
            self._flush(self._now_s)

    def _demand(self, guest: Guest, wants_mhz: float) -> None:
        """Ask for as much as the guest can use now: vcpus and cap limit what it wants."""
        host = guest.host
        demand = guest.vcpus * host.core_mhz
        if guest.cap_mhz < demand:
            demand = max(0.0, guest.cap_mhz)
        demand = min(demand, wants_mhz)
        total = host.demand_mhz - guest.demand_mhz + demand
        host.demand_mhz, guest.demand_mhz = total, demand
        if host.contended or total > host.limit_mhz:
            self._reshare(host)
        else:
            if guest.task is None:
                guest.count(self._now_s)
            guest.share_mhz = demand
        if guest.disk is not None:
            self._disks[host] = None

    def _no_demand(self, guest: Guest) -> None:
        host = guest.host
        if guest.task is None:
            guest.count(self._now_s)
        host.demand_mhz -= guest.demand_mhz
        guest.demand_mhz = guest.share_mhz = 0.0
        if guest.disk is not None:
            self._disks[host] = None
        if host.contended:
            self._reshare(host)

    def _reshare(self, host: Host) -> None:
        """Recompute the division of a host's CPU; tasks whose shares changed become dirty."""
        active = [guest for guest in host.guests.values() if guest.demand_mhz > 0.0]
        caps = [guest.demand_mhz for guest in active]
        host.demand_mhz = math.fsum(caps)
        host.contended = host.demand_mhz > host.limit_mhz
        given = shares([g.weight_mhz for g in active], caps, host.capacity_mhz) if host.contended else caps
        for guest, share in zip(active, given, strict=True):
            if share != guest.share_mhz:
                if guest.task is not None:
                    self._dirty[guest.task] = None
                else:
                    guest.count(self._now_s)
                if guest.disk is not None:
                    self._disks[host] = None
                guest.share_mhz = share

    def _flush(self, now_s: float) -> None:
        for host in self._disks:
            if host.disk is not None:
                self._dirty.update(dict.fromkeys(host.disk.share(now_s)))
        self._disks = {}
        dirty = self._dirty
        if dirty:
            self._dirty = {}
            for task in dirty:
                self._rerate(task, now_s)

    def _rerate(self, task: Task, now_s: float) -> None:
        """Set the task's speed to that of its slowest member, 0 unless all execute."""
        if task.executing < task.instances:
            rate = 0.0
        elif task.instances == 1:
            (guest,) = task.members.values()
            rate = guest.share_mhz if guest.disk is None else guest.pace_mhz
        elif task.io:
            rate = min([guest.pace_mhz for guest in task.members.values()])
        else:
            rate = min([guest.share_mhz for guest in task.members.values()])
        if rate == task.rate_mhz:
            return
        if task.rate_mhz > 0.0:
            task.done_mcycles = task.done_at(now_s)
            self._stale += 1
        task.since_s, task.rate_mhz = now_s, rate
        task.version += 1
        if rate > 0.0:
            left = task.targets_mcycles[task.stage] - task.done_mcycles
            task.next_s = now_s + left / rate
            heappush(self._heap, (task.next_s, task.name, task.version, task))
        else:
            task.next_s = math.inf
        if self._stale > STALE_MIN and self._stale * 2 > len(self._heap):
            self._heap[:] = [entry for entry in self._heap if entry[2] == entry[3].version]
            heapify(self._heap)
            self._stale = 0

    def _reach(self, task: Task, at_s: float) -> None:
        """Set the task's work to exactly that of its stage and invalidate its heap entry."""
        task.done_mcycles = task.targets_mcycles[task.stage]
        task.since_s, task.rate_mhz, task.next_s = at_s, 0.0, math.inf
        task.version += 1

    def _next_stage(self, task: Task, at_s: float) -> None:
        self._reach(task, at_s)
        task.stage += 1
        for guest in task.members.values():
            self._demand(guest, task.max_mhz[task.stage])
        self._rerate(task, at_s)

    def _finish(self, task: Task, at_s: float, over: list[str]) -> None:
        self._reach(task, at_s)
        self.completions[task.name].append((task.attempt, at_s))
        members = task.members
        if len(members) == 1:
            over.extend(members)
        else:
            over.extend(guest.vm for guest in sorted(members.values(), key=lambda guest: guest.index))
        self._release(task)
        task.ended = True

    def _release(self, task: Task) -> None:
        """Detach the task's guests; they keep their counters."""
        for guest in task.members.values():
            guest.executed_mcycles += task.done_mcycles - guest.base_mcycles
            if guest.demand_mhz:
                self._no_demand(guest)
            guest.task = None
        task.members = {}
        task.executing = 0

    def _set_back(self, task: Task, attempt: int, now_s: float) -> None:
        """Restart a task from its last checkpoint; guests of the earlier attempt become idle."""
        task.attempt, task.ended = attempt, False
        if task.executing == task.instances:
            task.executing = 0
            self._rerate(task, now_s)
        self._release(task)
        if task.done_mcycles > 0.0:
            step = task.checkpoint_mcycles
            task.done_mcycles = math.floor(task.done_mcycles / step) * step if step > 0 else 0.0
            task.stage = 0
            while task.stage + 1 < len(task.targets_mcycles) and task.done_mcycles >= task.targets_mcycles[task.stage]:
                task.stage += 1
        self._flush(now_s)
