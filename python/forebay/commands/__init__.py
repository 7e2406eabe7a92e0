"""The commands of the command line: a package for each protocol, ``_shared`` for their common parts, and
``broker``, which serves all protocols. :mod:`forebay.cli` parses the arguments and picks the module.

A protocol's package has a module ``arguments`` with the flags that differ between protocols, and the modules
``pub``, ``sub``, ``bench``, ``doctor`` and ``topic``, each with a ``run`` that takes the parsed arguments and
returns the exit status. ``parsers`` has the arguments of the commands that are the same for all protocols.
"""
