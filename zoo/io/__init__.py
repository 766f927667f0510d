"""Files: written whole or not at all, small ones of strangers read with limits, locks."""
