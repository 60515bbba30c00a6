"""Data: parallel examples read, checked, encoded and put into batches."""
