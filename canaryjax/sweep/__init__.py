"""Sweeps: many audits from one file, each an ordinary run directory, and one page over all of them."""
