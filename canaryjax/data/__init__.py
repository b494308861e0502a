"""Examples, where they come from, the prompts made of them, and their tokens."""
