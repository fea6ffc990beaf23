"""Benchmarks of lucidgraph beside its peers: ``python -m benchmarks --help``; what there is, in docs/benchmarks.md."""
