"""The tables of an agreement's file that say what is done to a node that changes hands, and how their keys relate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from daemons.manifests.rules import Group
from shared.config.records import Form, Range
from shared.values.agreement import Granularity
from shared.values.host_setup import DUTIES_MAX, Image, Package, RemoteFile, Setup, SetupPolicy

_STEP = r"(?!\.{1,2}(/|$))[A-Za-z0-9._+@-]+"
Digest = Annotated[str, Form(r"[0-9a-f]{64}", "a SHA-256 digest: 64 lower-case hexadecimal digits")]
Inside = Annotated[
    str,
    Form(
        rf"(?=.{{1,255}}$){_STEP}(/{_STEP})*",
        "a relative path of letters, digits and . _ + @ -, without . and .. as parts",
    ),
]
Address = Annotated[
    str, Form(r"(https?://[^\s/?#@]+(/[^\s#]*)?|file:///[^\s?#]+)", "https://..., http://... or file:///...")
]
Service = Annotated[
    str, Form(r"[A-Za-z0-9:_.@-]{1,120}\.service", "the name of a systemd service, such as shop.service")
]


@dataclass(frozen=True, slots=True)
class PackageTable:
    """A Debian package that is installed on the environment's nodes."""

    name: Annotated[str, Form(r"[a-z0-9][a-z0-9+.-]{1,127}", "the name of a Debian package")]
    """Name of the package. Example: `"render-engine"`."""
    sha256: Digest
    """SHA-256 digest of the package file. Example:
    `"0000000000000000000000000000000000000000000000000000000000000000"`."""
    version: Annotated[str, Form(r"[A-Za-z0-9.+:~-]{0,128}", "the version of a Debian package, or nothing")] = ""
    """Version of the package. Empty: the version that the nodes' sources have."""


@dataclass(frozen=True, slots=True)
class FileTable:
    """A file that is fetched to the environment's nodes."""

    url: Address
    """URL of the file. Example: `"https://files.example.org/render/scene.sh"`."""
    path: Inside
    """Path of the file in the environment's folder. Example: `"bin/scene.sh"`."""
    sha256: Digest
    """SHA-256 digest of the file. Example: `"0000000000000000000000000000000000000000000000000000000000000000"`."""
    executable: bool = False
    """Make the file executable."""


@dataclass(frozen=True, slots=True)
class ImageTable:
    """A VM image that the setup policy `image` clones to the environment's nodes."""

    name: Inside
    """Path of the image in the library of the nodes. Example: `"render.qcow2"`."""
    sha256: Digest
    """SHA-256 digest of the image. Example: `"0000000000000000000000000000000000000000000000000000000000000000"`."""


@dataclass(frozen=True, slots=True)
class SetupTable:
    """The provisioning hook: what is done to a node that is reassigned."""

    policy: SetupPolicy = SetupPolicy.NOOP
    """What is done to the node: nothing, a wipe of what the last environment left, a command, or cloning VM images."""
    command: Group = ""
    """Name of a command in `[setup.commands]` of the agents, for the policy `exec`."""
    limit_s: Annotated[float, Range(1.0, 86_400.0)] = 600.0
    """Time limit of one setup. Beyond it, the setup has failed."""
    acquire: bool = True
    """Apply the policy when a node comes to the environment."""
    release: bool = True
    """Apply the policy when a node leaves the environment."""
    images: tuple[ImageTable, ...] = ()
    packages: tuple[PackageTable, ...] = ()
    files: tuple[FileTable, ...] = ()
    services: tuple[Service, ...] = ()
    """Systemd services that are started on the environment's nodes, and stopped when a node leaves."""


def setup_of(table: SetupTable) -> Setup:
    """Return the setup that a table describes; InvalidValue for an invalid one."""
    return Setup(
        table.policy,
        table.command,
        table.limit_s,
        acquire=table.acquire,
        release=table.release,
        images=tuple(Image(image.name, image.sha256) for image in table.images),
        packages=tuple(Package(package.name, package.sha256, package.version) for package in table.packages),
        files=tuple(RemoteFile(file.url, file.path, file.sha256, file.executable) for file in table.files),
        services=table.services,
    )


# --- how keys relate ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FreshVms:
    """Requires that nothing is set up for VMs, which start from their template each time."""

    key: str = "setup.policy"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        wrong = values.get("granularity") is Granularity.VM and values.get(self.key) not in (None, SetupPolicy.NOOP)
        return "noop, since each VM starts fresh from its template" if wrong else ""


@dataclass(frozen=True, slots=True)
class NothingForVms:
    """`key` is empty with `granularity` `vm`."""

    key: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        wrong = values.get("granularity") is Granularity.VM and values.get(self.key)
        return "nothing, since each VM starts fresh from its template" if wrong else ""


@dataclass(frozen=True, slots=True)
class CommandOfExec:
    """`key` is given for the policy `exec`, and for no other."""

    key: str = "setup.command"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        policy = values.get("setup.policy")
        if policy is None or self.key not in values or (policy is SetupPolicy.EXEC) is bool(values[self.key]):
            return ""
        return "nothing, unless policy is exec" if values[self.key] else "a command that agents know, for policy exec"


@dataclass(frozen=True, slots=True)
class ImagesOfImage:
    """`key` is given for the policy `image`, and for no other."""

    key: str = "setup.images"

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        policy = values.get("setup.policy")
        if policy is None or self.key not in values or (policy is SetupPolicy.IMAGE) is bool(values[self.key]):
            return ""
        return (
            "nothing, unless policy is image" if values[self.key] else "images of the nodes' library, for policy image"
        )


@dataclass(frozen=True, slots=True)
class DutiesOnce:
    """`key` has at most 100 items, none of them twice."""

    key: str
    named: str = ""

    def broken(self, values: Mapping[str, Any]) -> str:
        """Return the expected value; "" if the rule holds."""
        entries = values.get(self.key, ())
        names = [getattr(entry, self.named) if self.named else entry for entry in entries]
        good = len({*names}) == len(names) <= DUTIES_MAX
        return "" if good else f"at most {DUTIES_MAX}, each {self.named or 'name'} once"


RULES = (
    FreshVms(),
    *(NothingForVms(f"setup.{key}") for key in ("packages", "files", "services")),
    CommandOfExec(),
    ImagesOfImage(),
    DutiesOnce("setup.images", "name"),
    DutiesOnce("setup.packages", "name"),
    DutiesOnce("setup.files", "path"),
    DutiesOnce("setup.services"),
)
