"""Recurrent sequence-to-sequence models, without and with attention of many kinds."""

from headway.models.recurrent.recurrent_model import Recurrent, RecurrentConfig

__all__ = ["Recurrent", "RecurrentConfig"]
