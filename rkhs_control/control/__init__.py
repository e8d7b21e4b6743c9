"""Control: optimal control problems on kernel models, certified loops, safety filters and invariant regions."""
