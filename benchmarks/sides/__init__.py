"""The sides of each benchmark: ours, and what people use today."""
