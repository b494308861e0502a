import sys

from canaryjax.cli import main

main(["audit", *sys.argv[1:]])
