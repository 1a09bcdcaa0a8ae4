"""How a run starts, and what it records of itself: options, stages, the record in run.json."""
