//! tokio: sockets, TLS, timers.
