"""A report of one snapshot, to attach to a ticket or to a CI run: gathered from a history, written as one HTML file or as
Markdown.

Read `gathering` first: it says what is in a report. `past` has what came before the snapshot, `machines` those concerned.
Imports neither Ray nor Spark.
"""
