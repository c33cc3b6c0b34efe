"""Rows of a table, from the file to their scores.

`tables` reads csv and parquet, `hashes` tells rows apart, `outputs` finds the scores in what a
model returns, `scoring` scores a table batch by batch, `scored` is the result: counted, sampled.
`leakage` warns of rows that the model was trained on, and of rows that belong together.
"""
