"""What the backend takes from Linux: threads by futex, OpenBLAS."""
