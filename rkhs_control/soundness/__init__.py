"""A campaign against the bounds: problems whose truths are known exactly, and what escapes."""
