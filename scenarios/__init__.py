"""Studies that run with one command: `rkhs-control run NAME`."""
