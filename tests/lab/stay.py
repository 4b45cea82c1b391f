"""A lab to try things in: `python -m tests.lab.stay 3` makes three hosts with their pools, says where they are, and
ends them at Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys

from tests.lab.errors import LabError
from tests.lab.hosts import HostSpec, lab_hosts


def main() -> int:
    """Stay until told to end; the exit status."""
    parser = argparse.ArgumentParser(prog="stay", description="a lab until Ctrl-C")
    parser.add_argument("hosts", type=int, nargs="?", default=2)
    parser.add_argument("--tls", action="store_true", help="libvirtd listens with certificates too")
    given = parser.parse_args()
    try:
        with lab_hosts(given.hosts, HostSpec(tls=given.tls)) as lab:
            print(f"{lab.folder}: this machine is {lab.machine_address}", flush=True)
            for host in lab.hosts:
                host.make_pools()
                print(f"{host.name} {host.address} {host.uri}", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
