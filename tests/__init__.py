"""Every process of the tests, and each program they start, reads one compiled copy of a module, outside the tree."""

import sys
from pathlib import Path

sys.dont_write_bytecode, sys.pycache_prefix = False, str(Path(sys.prefix) / "bytecode")
