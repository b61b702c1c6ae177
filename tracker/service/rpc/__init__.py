"""Calls: servicers, who may make which, and how they are refused."""
