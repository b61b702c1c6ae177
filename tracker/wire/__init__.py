"""Between protobuf messages and the core's plain data: the only place that knows both.

A module for each kind of message. Everything that comes from outside is checked here for form: packed
arrays of unequal length or broken size, unknown enum values and missing parts are refused before the
core sees them. Whether it may be honoured is the core's to judge.
"""
