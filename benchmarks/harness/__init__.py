"""What every benchmark shares: shapes, one saved model, interleaved timing, agreement, measured limits, records."""
