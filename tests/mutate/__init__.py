"""The mutation score: how many random mistakes of a single line the tests notice. `python -m tests.mutate --help`."""
