"""The table of stages and their execution: lock file, plan, row counts, protection of edits."""
