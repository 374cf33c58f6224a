"""`ray-snapshot serve`: pages over histories and running systems, for a browser.

Read `served` (what there is to show), `reading` (how it is read, once for all viewers), the functions in `pages` (what each
page says, as plain values), then `app` (addresses; each page is also JSON under `/api/v1`), `guard` (who may see it) and `live`
(the one place that asks running systems). Text comes from strangers: templates escape it, and only our own scripts run.
"""
