"""What the driver keeps in each domain's metadata, which a restarted agent needs to know."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from xml.etree import ElementTree as ET

from shared.values.vms import VmSpec, VmState

URI = "https://trimtab.dev/libvirt/1"
PREFIX = "trimtab"
TAG = f"{{{URI}}}vm"

ET.register_namespace(PREFIX, URI)


@dataclass(frozen=True, slots=True)
class Meta:
    """The element `trimtab:vm` of a domain.

    `managed` is false for a VM that was released. `begun`: it has come to life; a VM that has not is left from an
    interrupted start. `node`: where Trimtab put it. `pool`, `volume`: its own disk, removed with it ("": none).
    `saved`: the volume of its saved image, while it is suspended ("": it is not); `done`: the image that it was resumed
    from, if it is still there. `lent`: the node that continues to use its disk, which is then not removed here. `over`:
    how it ended ("": no end was noted); `kept`: somebody saved it by hand, so it is released instead of removed.
    `disks`: the generation of its local disks, see `shared.values.actions.Action`. `copied`: the names in the guest of
    the disks that are copied to `lent`, comma-separated; their files here are obsolete once it lives there.
    `autostart`: it starts with its host, or did; libvirt's own flag is off while it moves, and as long as `failover`
    says that Trimtab alone starts it with its host. `stamps`: how its disks were when its memory was saved, see
    `moved.stamps`. Of one that was adopted, `weighed`: its weight is by `cpu_mhz`; until an order has set that, it is
    its owner's. `stays_off`: as long as it runs, libvirt does not restart it when its guest has shut down or crashed.
    """

    generation: int = 0
    attempt: int = 0
    cpu_mhz: float = 0.0
    cap_mhz: float | None = None
    template: str = ""
    address: str = ""
    node: str = ""
    pool: str = ""
    volume: str = ""
    saved: str = ""
    done: str = ""
    lent: str = ""
    over: str = ""
    kept: bool = False
    managed: bool = True
    begun: bool = True
    disks: int = 0
    copied: str = ""
    autostart: bool = False
    stamps: str = ""
    failover: bool = False
    weighed: bool = False
    stays_off: bool = False

    @property
    def adopted(self) -> bool:
        """Whether the definition was there before it was ours: what we make names its template."""
        return self.managed and not self.template

    @property
    def owners_cpu(self) -> bool:
        """Whether its share of CPU is what its owner has made it."""
        return self.adopted and not self.weighed

    @property
    def owes_autostart(self) -> bool:
        """Whether libvirt's flag was switched off for a move, and is to be on again where the VM lives."""
        return self.autostart and not self.failover

    @classmethod
    def of(cls, spec: VmSpec, generation: int, node: str, address: str, pool: str, volume: str) -> Meta:
        """Return the metadata of a VM that is about to be started."""
        cpu = {"cpu_mhz": spec.cpu_mhz, "cap_mhz": spec.cap_mhz}
        own = {"template": spec.template, "address": address, "node": node, "pool": pool, "volume": volume}
        return cls(generation, spec.attempt, **cpu, **own, begun=False)  # type: ignore[arg-type]


def element_of(meta: Meta) -> ET.Element:
    """Return the element for a domain's `<metadata>`; defaults are left out."""
    element = ET.Element(TAG)
    plain = Meta()
    for field in fields(Meta):
        value = getattr(meta, field.name)
        if value != getattr(plain, field.name) or field.name in ("generation", "attempt"):
            element.set(field.name, _text(value))
    return element


def text_of(meta: Meta) -> str:
    """Return the element as libvirt's call for metadata requires it: without the prefix, which libvirt adds."""
    element = element_of(meta)
    element.tag = "vm"
    return ET.tostring(element, encoding="unicode")


def read(element: ET.Element | None) -> Meta | None:
    """Read the metadata of a domain from its element `trimtab:vm`; None if it is absent or cannot be parsed."""
    if element is None:
        return None
    values: dict[str, object] = {}
    try:
        for field in fields(Meta):
            text = element.get(field.name)
            if text is not None:
                values[field.name] = _VALUES[field.name](text) if field.name in _VALUES else text
    except ValueError:
        return None
    return Meta(**values) if "generation" in values else None  # type: ignore[arg-type]


def over_state(meta: Meta) -> VmState | None:
    """Return how the VM ended, as far as that was noted."""
    return VmState(meta.over) if meta.over in (VmState.ENDED, VmState.CRASHED) else None


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def _whole(text: str) -> int:
    number = int(text)
    if not 0 <= number < 1 << 63:
        raise ValueError(text)
    return number


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number) or number < 0:
        raise ValueError(text)
    return number


def _maybe(text: str) -> float | None:
    return _number(text) if text else None


def _yes(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError(text)
    return text == "yes"


_VALUES = {
    "generation": _whole,
    "attempt": _whole,
    "cpu_mhz": _number,
    "cap_mhz": _maybe,
    "managed": _yes,
    "kept": _yes,
    "begun": _yes,
    "disks": _whole,
    "autostart": _yes,
    "failover": _yes,
    "weighed": _yes,
    "stays_off": _yes,
}
