"""Boxes for the future states of a plant: one envelope per step and state, in and out of files."""
