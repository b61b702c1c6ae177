"""Credentials for a tracker and those who come to it: an authority, certificates, tokens."""
