"""Spark as an engine: it reads and scores rows, and hands back a slim table of them.

`session` opens Spark, `tables` reads, `scoring` lets the workers score, `worker` is what they run,
`engine` puts it together. Imported only when a user asks for it.
"""
