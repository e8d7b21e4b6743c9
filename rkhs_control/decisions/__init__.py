"""What to do while the data are inconclusive: experiments, and points that are certainly safe."""
