"""What is recorded, planned and allowed: arrays, sets, observations, trajectories, and their files."""
