"""Characters that both the canary families and the embedded model's tokenizer must know."""

# Eight single-code-point emoji (no variation selectors), so that each is one character, one offset and one token.
CANARY_EMOJI: tuple[str, ...] = ("🌟", "🔮", "🌀", "🎯", "🧩", "🪄", "🌈", "🔔")
