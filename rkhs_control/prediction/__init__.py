"""Boxes for the future states of a plant: one envelope per step and state, saved to and loaded from files."""
