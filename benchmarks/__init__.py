"""The release matrix: `python -m benchmarks`, and `python -m benchmarks report` for the README's tables."""
