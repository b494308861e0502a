"""The small base model that ships with the package (`model/`), its tokenizer, its corpus, and how it is made."""
