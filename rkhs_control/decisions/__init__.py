"""What to do where the data do not tell yet: experiments, and points that are safe for certain."""
