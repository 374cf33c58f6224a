"""A report of one snapshot, to attach to a ticket or to a CI run: gathered from a history, written as one HTML file or as
Markdown.

Read `gathering` first: it says what is in a report. `waits` has who waits for whom, `past` what came before,
`machines` those concerned; `page` and `markdown` write. Imports neither Ray nor Spark.
"""
