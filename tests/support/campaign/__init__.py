"""Campaigns: all protocols under load while processes are killed or the network is bad, with a ledger of what
became of each message."""
