"""The stages as one table, and a run through them: lock, plan, counts, kept edits."""
