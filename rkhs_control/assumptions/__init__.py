"""What is assumed about the plant: norm bounds, their consistency with the data, and how they are chosen."""
