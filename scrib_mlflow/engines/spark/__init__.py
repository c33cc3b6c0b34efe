"""Spark as an engine; imported only when it is asked for."""
