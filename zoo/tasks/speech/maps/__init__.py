"""Which part of a recording each token was written of: alignments over the spectrogram, tables, and occlusion."""
