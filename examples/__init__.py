"""Runnable examples; each one checks its own result and is run by the tests."""
