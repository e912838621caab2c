"""`python -m cuscan`."""

from cuscan.cli import main

raise SystemExit(main())
