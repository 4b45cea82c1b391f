"""The tables of an agreement's file that say what is done to a node that changes hands, and how their keys relate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from daemons.manifests.job import Group
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
    """A Debian package, see `shared.values.host_setup.Package`."""

    name: Annotated[str, Form(r"[a-z0-9][a-z0-9+.-]{1,127}", "the name of a Debian package")]
    sha256: Digest
    version: Annotated[str, Form(r"[A-Za-z0-9.+:~-]{0,128}", "the version of a Debian package, or nothing")] = ""


@dataclass(frozen=True, slots=True)
class FileTable:
    """A file that is fetched, see `shared.values.host_setup.RemoteFile`."""

    url: Address
    path: Inside
    sha256: Digest
    executable: bool = False


@dataclass(frozen=True, slots=True)
class ImageTable:
    """A VM image of the nodes' library, see `shared.values.host_setup.Image`."""

    name: Inside
    sha256: Digest


@dataclass(frozen=True, slots=True)
class SetupTable:
    """What is done to a node that changes hands, see `shared.values.host_setup.Setup`."""

    policy: SetupPolicy = SetupPolicy.NOOP
    command: Group = ""
    limit_s: Annotated[float, Range(1.0, 86_400.0)] = 600.0
    acquire: bool = True
    release: bool = True
    images: tuple[ImageTable, ...] = ()
    packages: tuple[PackageTable, ...] = ()
    files: tuple[FileTable, ...] = ()
    services: tuple[Service, ...] = ()


def setup_of(table: SetupTable) -> Setup:
    """The setup that a table describes; InvalidValue for one that cannot be."""
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
    """Nothing is set up for VMs, which begin anew each time."""

    key: str = "setup.policy"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        wrong = values.get("granularity") is Granularity.VM and values.get(self.key) not in (None, SetupPolicy.NOOP)
        return "noop, since a VM begins anew from its template each time" if wrong else ""


@dataclass(frozen=True, slots=True)
class NothingForVms:
    """Nothing is brought to VMs either."""

    key: str

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        wrong = values.get("granularity") is Granularity.VM and values.get(self.key)
        return "nothing, since a VM begins anew from its template each time" if wrong else ""


@dataclass(frozen=True, slots=True)
class CommandOfExec:
    """A setup by command names one, and no other does."""

    key: str = "setup.command"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        policy = values.get("setup.policy")
        if policy is None or self.key not in values or (policy is SetupPolicy.EXEC) is bool(values[self.key]):
            return ""
        return "nothing, unless policy is exec" if values[self.key] else "a command that agents know, for policy exec"


@dataclass(frozen=True, slots=True)
class ImagesOfImage:
    """A setup by images names some, and no other does."""

    key: str = "setup.images"

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
        policy = values.get("setup.policy")
        if policy is None or self.key not in values or (policy is SetupPolicy.IMAGE) is bool(values[self.key]):
            return ""
        return (
            "nothing, unless policy is image" if values[self.key] else "images of the nodes' library, for policy image"
        )


@dataclass(frozen=True, slots=True)
class DutiesOnce:
    """Nothing is brought twice, and there is not too much of it."""

    key: str
    named: str = ""

    def broken(self, values: Mapping[str, Any]) -> str:
        """What is expected, "" where that is so."""
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
