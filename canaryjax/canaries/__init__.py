"""Canaries: what is planted in documents, queries and answers, and the feedback that rewards it."""
