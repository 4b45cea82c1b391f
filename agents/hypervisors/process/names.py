"""Names of VMs as names of files, cgroups and units, and back."""

from __future__ import annotations

import re

from shared.base.errors import InvalidValue

LENGTH_MAX = 200  # with room for what stands around it in the name of a unit
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_ESCAPED = re.compile(r"(?:[A-Za-z0-9_-]|:[0-9a-f]{2})+")


def escaped(vm: str) -> str:
    """ASCII letters, digits, "-" and "_" as they are, every other byte as ":" and two hexadecimal digits: `job#0` is
    `job:230`. Raises InvalidValue for an empty name, or one that comes out longer than LENGTH_MAX."""
    name = "".join(chr(byte) if byte in _PLAIN else f":{byte:02x}" for byte in vm.encode("utf-8", "surrogatepass"))
    if not 0 < len(name) <= LENGTH_MAX:
        raise InvalidValue("vm", vm[:60], f"a name that takes 1 to {LENGTH_MAX} characters as a file")
    return name


def unescaped(name: str) -> str:
    """The VM that `escaped` made the name from. Raises InvalidValue for any other name."""
    if _ESCAPED.fullmatch(name):
        plain = re.sub(r":([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), name)
        try:
            vm = plain.encode("latin-1").decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            vm = ""
        if vm and escaped(vm) == name:
            return vm
    raise InvalidValue("name", name[:60], "a name made of a VM's")
