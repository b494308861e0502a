import sys

from canaryjax.cli import main

main(["probes", *sys.argv[1:]])
