"""The look of figures, and the fonts that can draw their text."""
