"""The parts of the commands that are the same for every protocol. Imports no protocol's package."""
