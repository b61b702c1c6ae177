"""What `lowmark.testing` and its fixtures offer to tests of other people."""
