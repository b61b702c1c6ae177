"""The one launcher of the tests and benchmarks: processes of a tracker and all that belongs to it.

`tracker` starts, kills, replaces, grows and ends a tracker, and local trackers; `children` any other
process; `redis_server` Redis; `network` and `relay` lie between them and can be cut. `told`, `serving`,
`listener`, `recording_listener` and `steps` are what child processes are made of. Whatever is started here
ends with whoever started it.
"""
