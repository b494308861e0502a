import sys

from canaryjax.cli import main

main(["sweep", *sys.argv[1:]])
