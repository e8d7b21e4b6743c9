"""Whether a plan keeps its limits: questions, verdicts, and the files that prove them."""
