"""The blocking face: the same modules as in ``_aio``, and the generated clients of the protocols."""
