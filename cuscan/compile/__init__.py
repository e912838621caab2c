"""Compile a plan's kernel and load it: source text, NVRTC, and a cache on disk."""
