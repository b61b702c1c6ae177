"""Writers of one batch, for `foreachBatch`: what they leave says which batch it is of."""
