"""Plants and ground truths: what the toolkit is tried on."""
