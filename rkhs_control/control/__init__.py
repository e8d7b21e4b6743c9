"""Control: optimal control problems on kernel models."""
