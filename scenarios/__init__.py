"""Studies that one command runs: `rkhs-control run NAME`."""
