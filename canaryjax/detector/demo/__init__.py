"""The end-to-end proof: two small models, one of which read planted sentences, are asked the same questions."""
