"""Makes the embedded base from nothing. A program on top of the package: it may import every layer below `cli`."""
