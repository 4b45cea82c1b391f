"""How a reference words what a key may hold, in every form that it has."""

from __future__ import annotations

from daemons.cli.reference.files import ConfigFile
from shared.config.reference import Key, toml_value
from shared.config.reload import needs_restart

REQUIRED = "required"
NONE = "none"


def kind_of(key: Key) -> str:
    """Return the type of a key with what is allowed and its unit: "number: 0.1 to 86400 s"."""
    allowed = " ".join(part for part in (key.values, key.unit) if part)
    return f"{key.type}: {allowed}" if allowed else key.type


def default_of(key: Key) -> str:
    """Return the default of a key as TOML writes it, "required" for one that must be given, "none" for one without."""
    if key.is_required:
        return REQUIRED
    return NONE if key.default is None else toml_value(key.default)


def change_of(file: ConfigFile, key: Key) -> str:
    """Return what a daemon needs to take a changed key: "restart" or "reload" ("" for a file that no daemon reads)."""
    if not file.unit:
        return ""
    return "restart" if needs_restart(key.name) else "reload"


def shown(name: str) -> str:
    """Return a key's name with NAME in place of a name of the user's choice."""
    return name.replace("*", "NAME")


def last(name: str) -> str:
    """Return a key's name inside its table."""
    return name.rpartition(".")[2]
