//! SQLite: one writer with group commit.
