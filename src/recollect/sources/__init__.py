"""Sources: readers of the conversations that other tools keep.

A source is one module. It knows where its tool keeps conversations (`discover`), recognizes them by content (`detect`)
and reads them (`read`) into the values of source.py. It writes nothing and does not know a store: the package `sync`
does that. registry.py lists the sources.
"""
