"""Micro-benchmarks: cases as data, a checked result, times beside a copy of the same bytes and beside peers.

The command line and `python -m benchmarks` share this package.
"""
