"""A stand-in for the Python module `libvirt`: a cluster of libvirtds in memory, as strict as libvirt 9.0 with QEMU."""
