"""Recorded data, plans and limits: arrays, sets, observations, trajectories, and their files."""
