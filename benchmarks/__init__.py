"""The release benchmark: `python -m benchmarks`, and `python -m benchmarks report` for its page and pictures."""
