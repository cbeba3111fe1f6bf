"""Clusters of values: how they are found, numbered for good, and changed by people."""
