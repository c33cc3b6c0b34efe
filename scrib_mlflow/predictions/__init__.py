"""Answers for whole tables, as parquet files that are whole or not there.

`answers` writes them in this process, `spark` (an extra) in Spark's workers.
"""
