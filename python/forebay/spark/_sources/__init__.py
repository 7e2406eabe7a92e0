"""Sources: what ``spark.read`` and ``spark.readStream`` read."""
