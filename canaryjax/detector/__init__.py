"""The site-canary detector: asks a model, with controls, whether it learned planted sentences."""
