"""Documents with markup: the text is translated, and everything else stays unchanged, byte for byte."""
