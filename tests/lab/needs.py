"""What a lab needs of the machine."""

from __future__ import annotations

import os

from tests.integration import debian
from tests.lab.errors import LabError
from tests.lab.partitions import find_partitions

PROGRAMS = ("libvirtd", "virsh", "qemu-system-x86_64", "qemu-img", "openssl", "ip", "nsenter", "unshare", "setpriv")
PACKAGES = (
    *("libvirt-daemon", "libvirt-daemon-driver-qemu", "libvirt-clients", "qemu-system-x86", "qemu-utils"),
    *("openssl", "iproute2", "util-linux"),
)


def need_lab() -> None:
    """Skip the test, or fail it when CI=true, where no lab can be made; install what Debian has for it."""
    debian.need_root("a lab of hosts")
    debian.need_programs(PROGRAMS, PACKAGES)
    debian.need_libvirt_module()
    try:
        find_partitions()
    except LabError as error:
        debian.go_without(str(error))
    if not os.path.exists("/dev/net/tun"):
        debian.go_without("guests with a network need /dev/net/tun")
