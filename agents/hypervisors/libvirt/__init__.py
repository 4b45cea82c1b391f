"""VMs of libvirt (docs/reference/libvirt.md). Only `binding` imports the library."""
