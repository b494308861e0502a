"""Reinforcement learning from feedback over a leading policy axis. Knows rewards and prompts, not what a canary is."""
