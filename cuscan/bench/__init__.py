"""Micro-benchmarks: cases as data, checked results, and times compared with a copy of the same bytes and with peers.

The command line and `python -m benchmarks` share this package.
"""
