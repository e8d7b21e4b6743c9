"""From intervals to weights that prove: functionals, kernel matrices, the active-set path, witnesses."""
