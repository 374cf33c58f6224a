"""A report of one snapshot, to attach to a ticket or to a CI run: gathered from a history, written as one HTML file or as
Markdown; and the same drawings and words as fragments for notebooks.

Read `gathering` first: it says what is in a report. `waits` has who waits for whom, `past` what came before, `changes` what
is otherwise since then, `machines` those concerned; `page`, `markdown` and `notebook` write. Imports neither Ray nor Spark.
"""
