//! Warnings that belong to no call of the application: what was dropped, skipped or given up in the background.

use std::sync::OnceLock;

/// Receives warnings. Called on the engine's thread, possibly under a lock; must neither block nor call the client.
pub type Sink = fn(&str);

static SINK: OnceLock<Sink> = OnceLock::new();

/// Sets the receiver of warnings for the process. The first call wins; without one they are dropped.
pub fn set_sink(sink: Sink) {
    let _ = SINK.set(sink);
}

pub(super) fn warn(text: &str) {
    if let Some(sink) = SINK.get() {
        sink(text);
    }
}
