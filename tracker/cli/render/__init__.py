"""What needs a terminal: tables and live views."""
