"""Recurrent sequence-to-sequence models, with and without attention."""

from headway.models.recurrent.recurrent_model import Recurrent, RecurrentConfig

__all__ = ["Recurrent", "RecurrentConfig"]
