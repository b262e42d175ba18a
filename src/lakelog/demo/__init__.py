"""``lakelog demo``: a pipeline from raw events to figures, as one would write it on Lakelog.

Read ``pipeline`` first. ``events`` makes up the data, ``race`` lets two writers meet, ``story`` goes through it all,
``run`` starts and checks it, ``show`` prints.
"""
