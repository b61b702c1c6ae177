"""The bars that Lowmark holds itself to, measured: `make bench`, and `docs/performance.md` for how."""
