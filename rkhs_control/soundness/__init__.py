"""A campaign against the bounds: problems whose truths are known exactly, and which of them escape."""
