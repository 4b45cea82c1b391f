"""Names of VMs as names of files, cgroups and units."""

from __future__ import annotations

from shared.base.errors import InvalidValue

LENGTH_MAX = 200  # with room for what stands around it in the name of a unit
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def escaped(vm: str) -> str:
    """ASCII letters, digits, "-" and "_" as they are, every other byte as ":" and two hexadecimal digits: `job#0` is
    `job:230`. Raises InvalidValue for an empty name, or one that comes out longer than LENGTH_MAX."""
    name = "".join(chr(byte) if byte in _PLAIN else f":{byte:02x}" for byte in vm.encode("utf-8", "surrogatepass"))
    if not 0 < len(name) <= LENGTH_MAX:
        raise InvalidValue("vm", vm[:60], f"a name that takes 1 to {LENGTH_MAX} characters as a file")
    return name
