"""Speed and agreement of every operation, against what anyone would use instead."""
