"""canaryjax."""
