"""VMs of libvirt (docs/libvirt.md). Only `binding` imports the library."""
