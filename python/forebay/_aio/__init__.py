"""The asyncio face: the part that all protocols share."""
