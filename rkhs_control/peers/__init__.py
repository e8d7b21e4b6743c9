"""Peers: other ways to answer the same questions, fitted on the same recordings, one file each."""
