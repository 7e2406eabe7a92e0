"""The embedded broker in operation: what its page, permissions and log cost."""
