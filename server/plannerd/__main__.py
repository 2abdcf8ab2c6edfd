"""`python -m plannerd` is the command `plannerd`."""

import sys

from plannerd.cli import main

sys.exit(main())
