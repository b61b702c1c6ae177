"""What people are shown: reads only."""
