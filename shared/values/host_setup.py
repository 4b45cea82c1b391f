"""What is done to a host when it changes hands: packages, files, images and services, checked when made."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from shared.base.errors import InvalidValue
from shared.values.nodes import SetupStep
from shared.values.scalars import check_name, positive

DUTIES_MAX = 100
SETUP_LIMIT_S_MAX = 86_400.0
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PATH = re.compile(r"[A-Za-z0-9._+@/-]{1,255}")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]{1,127}")
_VERSION = re.compile(r"[A-Za-z0-9.+:~-]{1,128}")
_URL = re.compile(r"(https?://[^\s/?#@]+(/[^\s#]*)?|file:///[^\s?#]+)")
_SERVICE = re.compile(r"[A-Za-z0-9:_.@-]{1,120}\.service")


class SetupPolicy(StrEnum):
    """What is done to a node when it changes hands."""

    NOOP = "noop"
    WIPE = "wipe"  # whatever its last holder left is removed, but for the saved images of suspended VMs
    EXEC = "exec"  # a command that the node's agent knows by name
    IMAGE = "image"  # the images of its VMs are cloned from the library that the node's agent knows


def check_digest(field: str, digest: str) -> None:
    """Raise `InvalidValue` unless it is a SHA-256 digest in hexadecimal."""
    if not _DIGEST.fullmatch(digest):
        raise InvalidValue(field, digest, "a SHA-256 digest: 64 lower-case hexadecimal digits")


def check_inside(field: str, path: str) -> None:
    """Raise `InvalidValue` unless it is a relative path that stays inside the folder that it is relative to."""
    parts = path.split("/")
    if not _PATH.fullmatch(path) or any(part in ("", ".", "..") for part in parts):
        raise InvalidValue(field, path, "a relative path of letters, digits and . _ + @ -, without . and .. as parts")


@dataclass(frozen=True, slots=True)
class Package:
    """A Debian package, as the nodes' package sources have it. version: "" is whichever they have. sha256: of its
    file."""

    name: str
    sha256: str
    version: str = ""

    def __post_init__(self) -> None:
        if not _PACKAGE.fullmatch(self.name):
            raise InvalidValue("name", self.name, "the name of a Debian package")
        if self.version and not _VERSION.fullmatch(self.version):
            raise InvalidValue("version", self.version, "the version of a Debian package, or nothing")
        check_digest("sha256", self.sha256)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file that is fetched from `url` (https, http or file) to `path` in the environment's own folder on the node."""

    url: str
    path: str
    sha256: str
    executable: bool = False

    def __post_init__(self) -> None:
        if not _URL.fullmatch(self.url):
            raise InvalidValue("url", self.url, "https://..., http://... or file:///...")
        check_inside("path", self.path)
        check_digest("sha256", self.sha256)


@dataclass(frozen=True, slots=True)
class Image:
    """A VM image of the library that the nodes' agents know, by its path in there."""

    name: str
    sha256: str

    def __post_init__(self) -> None:
        check_inside("name", self.name)
        check_digest("sha256", self.sha256)


@dataclass(frozen=True, slots=True)
class Setup:
    """The setup of a node when it enters an environment (`acquire`) and when it leaves it (`release`).

    command: of EXEC, the name under which the agents know it ("" for the others). images: of IMAGE. limit_s: for one
    run. packages, files and services apply under every policy. On entry they are installed, fetched and started, in
    this order, after the policy. On leaving, services are stopped and files removed before it.
    """

    policy: SetupPolicy = SetupPolicy.NOOP
    command: str = ""
    limit_s: float = 600.0
    acquire: bool = True
    release: bool = True
    images: tuple[Image, ...] = ()
    packages: tuple[Package, ...] = ()
    files: tuple[RemoteFile, ...] = ()
    services: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.policy is SetupPolicy.EXEC) is not bool(self.command):
            raise InvalidValue("command", self.command, "the name of a command for policy exec, else nothing")
        if self.command:
            check_name("command", self.command)
        if (self.policy is SetupPolicy.IMAGE) is not bool(self.images):
            raise InvalidValue("images", len(self.images), "images for policy image, else nothing")
        positive("limit_s", self.limit_s)
        if self.limit_s > SETUP_LIMIT_S_MAX:
            raise InvalidValue("limit_s", self.limit_s, f"at most {SETUP_LIMIT_S_MAX:g}")
        for service in self.services:
            if not _SERVICE.fullmatch(service):
                raise InvalidValue("services", service, "the name of a systemd service, such as shop.service")
        named = {
            "images": [image.name for image in self.images],
            "packages": [package.name for package in self.packages],
            "files": [file.path for file in self.files],
            "services": list(self.services),
        }
        for key, names in named.items():
            if len(names) > DUTIES_MAX or len(set(names)) < len(names):
                raise InvalidValue(key, len(names), f"at most {DUTIES_MAX}, each once")

    @property
    def brings(self) -> bool:
        """It has something to install, fetch or start besides its policy."""
        return bool(self.packages or self.files or self.services)

    def skips(self, step: SetupStep) -> bool:
        """Return whether the agreement skips this step."""
        return not self.brings and not (self.release if step is SetupStep.RELEASE else self.acquire)

    def policy_at(self, step: SetupStep) -> SetupPolicy:
        """Return the policy that is carried out at this step."""
        wanted = self.release if step is SetupStep.RELEASE else self.acquire
        return self.policy if wanted else SetupPolicy.NOOP
