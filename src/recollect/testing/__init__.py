"""The conformance suite, shipped, so that anyone can test an engine."""
