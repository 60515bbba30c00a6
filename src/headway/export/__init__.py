"""Models for engines that other people run."""
