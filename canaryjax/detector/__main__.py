import sys

from canaryjax.cli import main

main(["detector", *sys.argv[1:]])
