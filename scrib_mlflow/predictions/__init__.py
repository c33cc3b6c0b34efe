"""Answers for whole tables, as parquet files."""
