"""Whether a VM can be started on another host when its own is gone: what of it lies on its host alone, and what a start
needs elsewhere. Both are texts "kind=value", as in `shared.values.migration`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shared.values.migration import TEMPORARY, feature, parted

HOST_FILES: Mapping[str, str] = {
    "checkpoints": "its checkpoints are known to its host alone",
    "definition": "its definition has {value}, which no other host takes",
    "disk": "its disk {value} lies on its host alone",
    "nvram": "its firmware variables {value} lie on its host alone",
    "password": "the password of its display is in the definition on its host alone",
    "snapshots": "its snapshots are known to its host alone",
    "tpm": "the state of its TPM lies on its host alone",
}
"""What is lost with a host, each with the sentence that says so."""
LIVE_ONLY = frozenset({"cpu", "snapshots", "storage", "tls"})  # kinds that a live migration needs, and a start does not
LIVE_ONLY_BOUND = TEMPORARY | {"invtsc"}


def host_file(kind: str, value: str = "") -> str:
    """Return the text of something that lies on one host alone. Raises KeyError for what is not in `HOST_FILES`."""
    if kind not in HOST_FILES:
        raise KeyError(kind)
    return feature(kind, value)


def host_file_sentence(text: str) -> str:
    """Return in words why a VM with this on its host cannot be started elsewhere."""
    kind, value = parted(text)
    return HOST_FILES.get(kind, "its {value} lies on its host alone").format(value=value or kind)


def start_needs(needs: Iterable[str]) -> tuple[str, ...]:
    """Return those needs of a live migration that a start on another host has, too."""
    return tuple(need for need in needs if not _is_live_only(*parted(need)))


def _is_live_only(kind: str, value: str) -> bool:
    return kind in LIVE_ONLY or (kind == "bound" and value.partition(":")[0] in LIVE_ONLY_BOUND)
