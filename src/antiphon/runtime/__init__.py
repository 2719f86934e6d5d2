"""The driver for real processes: what takes the pure protocols to sockets, disks and clients."""
