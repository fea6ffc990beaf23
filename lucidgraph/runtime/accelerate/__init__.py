"""The Accelerate backend: the CPU, natively. ``backend.create()`` makes it."""
