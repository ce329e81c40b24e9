"""Measurements on private servers; each prints one table with a reference of the same run."""
