"""Documents with markup: their text is translated, and everything else stays as it is, byte for byte."""
