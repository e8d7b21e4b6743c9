"""The command line, what it prints, and the benchmarks."""
