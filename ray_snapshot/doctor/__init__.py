"""`ray-snapshot doctor`: what may be in the way on this machine, and what to do about it.

`checks` says what each fact means: functions of plain values, so that each answer is tested without anything being broken.
`looking` gets the facts of this machine, `asking` asks for all of them, each in bounded time. Imports neither Ray nor Spark at
its top: that they cannot be imported is one of the answers.
"""
