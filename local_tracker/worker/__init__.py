"""How Python workers reach the local tracker of their host: standard library and NumPy alone.

`protocol` is what goes over the socket, `handle` asks over it with a deadline, `starting` starts the
local tracker on first use, `settings` and `task` say for what, `collector` gathers acks, `bundle`
packs all of it for `--py-files`.
"""
