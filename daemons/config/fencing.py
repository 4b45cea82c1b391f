"""What the controller's configuration file may say of fencing by fence-agents programs: `[fencing]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from shared.config.common import Duration, SecretFile
from shared.config.records import Form, Items, Range

METHODS_MAX = 8

MethodName = Annotated[str, Form(r"[A-Za-z0-9_-]{1,64}", "ASCII letters, digits, '-' or '_'")]
Agent = Annotated[str, Form(r"/[^\0]+|[A-Za-z0-9_.-]{1,128}", "the name of a program, or its absolute path")]
OptionValue = Annotated[str, Form(r"[^\0-\x1f\x7f]{0,1024}", "a line of at most 1024 characters")]


@dataclass(frozen=True, slots=True)
class FencingMethod:
    """A method of fencing: a fence-agents program and its options."""

    agent: Agent
    """Program of the fence-agents package, looked up on PATH and in `/usr/sbin`, or an absolute path. Example:
    `"fence_ipmilan"`."""
    limit_s: Duration = 60.0
    """Time limit of one run of the program. Beyond it, the program is killed and has failed."""
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    """Options of the program. In their values `{node}` is the node's name, `{mac}` its first hardware address."""
    password_file: SecretFile = ""
    """File of the option `password`: a path or `credential:NAME`. It is read at each run. Empty: no password."""
    nodes: Mapping[str, Mapping[str, OptionValue]] = field(default_factory=dict)
    """Options of single nodes, by node name. They replace those of `options`."""


@dataclass(frozen=True, slots=True)
class FencingKeys:
    """Fencing by fence-agents programs, before the power driver's own."""

    methods: Annotated[tuple[MethodName, ...], Items(0, METHODS_MAX, distinct=True)] = ()
    """Methods in the order in which they are tried. Each has a table `[fencing.method.NAME]`. Empty: none."""
    attempts: Annotated[int, Range(1, 10)] = 2
    """Attempts of each method before the next one is tried."""
    method: Mapping[str, FencingMethod] = field(default_factory=dict)
    lease_witnesses: Annotated[int, Range(0, 10)] = 2
    """Nodes that must report a storage lease as expired until that proves its node off, or all where there are fewer.
    `0`: leases prove nothing."""
