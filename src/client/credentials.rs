//! Tokens and passwords: the text itself, or a function that returns the current one.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};

/// Returns a token or password when one is needed: at each connect, and whenever the broker asks for a fresh one.
/// Called on a thread where it may block.
pub type SecretSupplier = Arc<dyn Fn() -> Result<String> + Send + Sync>;

/// A token or password. `Debug` never shows it.
#[derive(Clone)]
pub enum Secret {
    /// The text itself.
    Text(String),
    /// A function that is called each time.
    Supplier(SecretSupplier),
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl Secret {
    /// The current text; a supplier is called on a thread where it may block.
    pub(super) async fn get(&self) -> Result<String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Supplier(supplier) => {
                let supplier = Arc::clone(supplier);
                tokio::task::spawn_blocking(move || supplier()).await.unwrap_or_else(|_| {
                    let text = "the function that supplies the token or password panicked: fix it so that it \
                                returns a string or an error";
                    Err(Error::new(ErrorKind::Authentication, text))
                })
            }
        }
    }
}
