"""The guest that serves HTTP: Debian's cloud kernel and an initramfs of busybox with guest_linux.sh as its init.

Both packages are downloaded and read, not installed. What is made of them is kept for the next run, by what it was made
of; nothing of it needs root.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tests.integration import debian

INIT = Path(__file__).with_suffix(".sh")
KERNEL = "linux-image-cloud-amd64"  # depends on the kernel itself, whose name has a version
BUSYBOX = "busybox-static"
PROGRAMS = ("apt-get", "apt-cache", "dpkg-deb")
PACKAGES = ("apt", "dpkg")
MODULES = ("virtio_pci", "virtio_net", "virtio_balloon", "button", "evdev")
MEMORY_MIB = 96  # what the guest needs
DOWNLOAD_LIMIT_S = 300.0
FOLDER_MODE, PROGRAM_MODE, FILE_MODE, DEVICE_MODE = 0o040755, 0o100755, 0o100644, 0o020600
CONSOLE = (5, 1)  # device numbers of /dev/console, without which an init has no output


@dataclass(frozen=True, slots=True)
class WebFiles:
    """What a web guest starts from. `made_of`: the packages, with their versions."""

    kernel: Path
    initrd: Path
    made_of: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of an initramfs."""

    name: str
    mode: int
    content: bytes = b""
    device: tuple[int, int] = (0, 0)


def web_guest(folder: Path | None = None) -> WebFiles:
    """The kernel and the initramfs of the web guest, in `folder` (else in $XDG_CACHE_HOME/trimtab-lab); made there if
    they are not there already. Skips the test, or fails it when CI=true, where the packages cannot be had."""
    place = (folder or _cache()) / f"web-{_recipe()}"
    with debian.locked("guest-linux"):
        if not place.is_dir():
            debian.need_programs(PROGRAMS, PACKAGES)
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="web-", dir=place.parent) as scratch:
                made = Path(scratch) / "made"
                made.mkdir()
                _make(Path(scratch), made)
                made.rename(place)
    made_of = tuple((place / "made-of").read_text().split())
    return WebFiles(place / "kernel", place / "initrd", made_of)


def _cache() -> Path:
    """Where what takes long to make is kept from run to run."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trimtab-lab"


def _recipe() -> str:
    """What changes with whatever the guest is made by, but for new versions of its packages."""
    said = [INIT.read_text(), KERNEL, BUSYBOX, *MODULES]
    return hashlib.sha256("\0".join(said).encode()).hexdigest()[:12]


def _make(scratch: Path, made: Path) -> None:
    """Write kernel, initramfs and what they are made of."""
    _download(scratch)
    kernel_package, busybox_package = (next(scratch.glob(f"{name}*.deb")) for name in ("linux-image-", BUSYBOX))
    busybox = _files(busybox_package, re.compile(r"bin/busybox"))["bin/busybox"]
    wanted = _files(kernel_package, re.compile(r"boot/vmlinuz-.*|.*\.ko"))
    kernel = next(content for name, content in wanted.items() if name.startswith("boot/"))
    modules = {_module(name): content for name, content in wanted.items() if name.endswith(".ko")}
    (made / "kernel").write_bytes(kernel)
    (made / "initrd").write_bytes(initramfs(_entries(busybox, modules)))
    (made / "made-of").write_text("".join(f"{file.stem}\n" for file in sorted(scratch.glob("*.deb"))))


def _download(scratch: Path) -> None:
    """Download the packages. Skips the test, or fails it when CI=true, with what apt said where that cannot be done."""
    said = _try_download(scratch)
    if said and os.geteuid() == 0:  # there may be no lists of packages, or old ones
        _apt(["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "update"], scratch)
        said = _try_download(scratch)
    if said:
        debian.go_without(f"no {KERNEL} and {BUSYBOX} from Debian: {said}")


def _try_download(scratch: Path) -> str:
    """Download the packages; what apt said where that failed, "" where it did not."""
    found = _apt(["apt-cache", "depends", KERNEL], scratch)
    kernel = re.search(r"linux-image-\d\S*-cloud-amd64", found.stdout)
    if kernel is None:
        return found.stderr or "no such package"
    done = _apt(["apt-get", "-qq", "download", kernel[0], BUSYBOX], scratch)
    return done.stderr[-500:] or "apt-get download failed" if done.returncode else ""


def _apt(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
        timeout=DOWNLOAD_LIMIT_S,
    )


def _files(package: Path, wanted: re.Pattern[str]) -> dict[str, bytes]:
    """Those files of a Debian package whose whole path matches."""
    found: dict[str, bytes] = {}
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as unpacking:
        assert unpacking.stdout is not None
        with tarfile.open(fileobj=unpacking.stdout, mode="r|") as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                content = archive.extractfile(member) if member.isfile() and wanted.fullmatch(name) else None
                if content is not None:
                    found[name] = content.read()
    if unpacking.returncode:
        raise OSError(f"{package} cannot be unpacked: status {unpacking.returncode}")
    return found


def _module(name: str) -> str:
    """The name by which a kernel module is known, of that of its file."""
    return PurePosixPath(name).stem.replace("-", "_")


def _entries(busybox: bytes, modules: Mapping[str, bytes]) -> Iterator[Entry]:
    """The files of the initramfs."""
    order = loading_order(MODULES, modules)
    for folder in ("bin", "dev", "modules"):
        yield Entry(folder, FOLDER_MODE)
    yield Entry("dev/console", DEVICE_MODE, device=CONSOLE)
    yield Entry("bin/busybox", PROGRAM_MODE, busybox)
    yield Entry("init", PROGRAM_MODE, INIT.read_bytes())
    yield Entry("modules/order", FILE_MODE, "".join(f"{name}.ko\n" for name in order).encode())
    for name in order:
        yield Entry(f"modules/{name}.ko", FILE_MODE, modules[name])


def loading_order(wanted: Iterable[str], modules: Mapping[str, bytes]) -> tuple[str, ...]:
    """Kernel modules with all that they need, each after those that it needs."""
    order: dict[str, None] = {}
    for name in wanted:
        needs = re.search(rb"\0depends=([^\0]*)\0", modules[name])
        needed = needs[1].decode().replace("-", "_").split(",") if needs and needs[1] else []
        order |= dict.fromkeys(loading_order(needed, modules))
        order[name] = None
    return tuple(order)


def initramfs(entries: Iterable[Entry]) -> bytes:
    """A compressed cpio archive of format newc (Linux, Documentation/driver-api/early-userspace/buffer-format.rst)."""
    whole = [*entries, Entry("TRAILER!!!", 0)]
    return gzip.compress(b"".join(_packed(number, entry) for number, entry in enumerate(whole, start=1)), mtime=0)


def _packed(number: int, entry: Entry) -> bytes:
    """One file of the archive: header of hexadecimal numbers, name and content, the last two padded to four bytes."""
    name = entry.name.encode() + b"\0"
    links = 1
    fields = (number, entry.mode, 0, 0, links, 0, len(entry.content), 0, 0, *entry.device, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _padded(header + name) + _padded(entry.content)


def _padded(part: bytes) -> bytes:
    return part + b"\0" * (-len(part) % 4)
