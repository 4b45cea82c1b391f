"""What drives services of the host itself: systemd over D-Bus. Imported by the packages of `agents` that need it."""
