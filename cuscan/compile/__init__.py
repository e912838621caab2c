"""From a plan to a loaded kernel: source text, then NVRTC and a cache on disk."""
