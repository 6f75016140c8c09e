"""`python -m vole`: the same as the program `vole`."""

from vole.cli import main

main()
