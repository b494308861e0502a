"""Whether memorisation probes agree: windows, spans, recall and decoys of planted secrets, side by side."""
