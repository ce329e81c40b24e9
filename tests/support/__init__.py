"""Tools the tests share: a proxy that pulls the cable."""
