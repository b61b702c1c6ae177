"""Clients and the command line, most of them against real servers."""
