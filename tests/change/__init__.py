"""The demo's flights while the pipeline is changed and its tracker's processes are replaced one by one: `make change`.

`pipeline` has what the pipeline is before, between and behind the changes, `driver` the Spark side, `pulse` a front that
shows whether announcements go on, `run` lets it all happen, `judging` compares what Spark has committed with what was
announced.
"""
