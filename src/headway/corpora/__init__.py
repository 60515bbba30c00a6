"""Training corpora: examples are read, checked, encoded, and grouped into batches."""
