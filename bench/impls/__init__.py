"""One file an implementation: what it takes, how it is called. The registry is registry.py."""
