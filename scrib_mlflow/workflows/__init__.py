"""The commands, one module each: where settings meet the rooms.

`policy` is the gate's decision alone: evidence in, checks out.
"""
