"""The paper's experiments that are no part of calibrating: arrays in, values out."""
