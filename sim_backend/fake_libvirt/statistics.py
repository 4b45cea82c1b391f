"""What getAllDomainStats says of a domain, and which domains a list is of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sim_backend.fake_libvirt.codes import State
from sim_backend.fake_libvirt.refusals import pages_kib
from sim_backend.fake_libvirt.state import Dom

STATE, CPU, BALLOON, VCPU, NET, BLOCK, DIRTY_RATE = 1, 2, 4, 8, 16, 32, 512
PROCESS_KIB = 40 << 10  # of QEMU itself
FOREIGN_NS = 250_000_000
BYTES_PER_CPU_S = 1 << 20  # what a guest reads, and writes, of its disk


def listed(dom: Dom, flags: int) -> bool:
    """Return whether a domain matches the flags of a list: one flag of each group that is given."""
    active, persistent = dom.live is not None, dom.config is not None
    states = {State.RUNNING: 16, State.PAUSED: 32, State.SHUTOFF: 64}
    mine = (1 if active else 2, 4 if persistent else 8, states.get(State(dom.state), 128))
    groups = (3, 12, 240)
    return all(not flags & group or flags & bit for group, bit in zip(groups, mine, strict=True))


def of(dom: Dom, groups: int, size_of: Callable[[str], int] = lambda _path: 0, now_s: float = 0.0) -> Mapping[str, Any]:
    """Return the statistics of these groups. `size_of`: the bytes of a file of its host."""
    said: dict[str, Any] = {}
    cpu_ns = int(dom.cpu_s * 1e9)
    kib = dom.definition.memory_kib
    if groups & STATE:
        said |= {"state.state": int(dom.state), "state.reason": int(dom.reason)}
    if groups & CPU:
        if dom.live is None:
            cpu_ns = FOREIGN_NS  # QEMU's driver looks at process 0: it is somebody else's
        said |= {"cpu.time": cpu_ns, "cpu.user": cpu_ns, "cpu.system": 0}
    if groups & BALLOON:
        said |= {"balloon.current": kib, "balloon.maximum": kib}
        if dom.live is not None:
            memory = None if dom.guest is None else dom.guest.memory
            touched_kib = kib if memory is None else round(1024 * memory.resident_mib)
            rss = PROCESS_KIB + max(0, touched_kib - sum(pages_kib(dom.definition).values()))  # hugepages are not in it
            said |= {"balloon.rss": rss, "balloon.last-update": 0}
    if groups & VCPU:
        said |= {"vcpu.current": dom.definition.vcpus, "vcpu.maximum": dom.definition.vcpus}
    if groups & BLOCK:
        said |= {"block.count": len(dom.definition.disks)}
        for number, path in enumerate(dom.definition.disks):
            said |= {f"block.{number}.name": f"vd{chr(97 + number)}", f"block.{number}.path": path}
            said |= {f"block.{number}.{key}": size_of(path) for key in ("allocation", "capacity", "physical")}
            if dom.live is not None:
                size = int(dom.cpu_s * BYTES_PER_CPU_S)
                for way in ("rd", "wr"):
                    said |= {f"block.{number}.{way}.reqs": size >> 12, f"block.{number}.{way}.bytes": size}
                    said |= {f"block.{number}.{way}.times": cpu_ns // 10}
    if groups & DIRTY_RATE and dom.live is not None:
        said |= {"dirtyrate.calc_status": 0} if dom.dirty_rate is None else dom.dirty_rate.stats(now_s)
    return said
