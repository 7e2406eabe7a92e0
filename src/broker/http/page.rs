//! The page for operators: three files, which anybody may read, and the clients of all protocols,
//! under `/forebay/v1`.
//!
//! | | |
//! |---|---|
//! | `GET clients?filter=TEXT` | the clients that are connected, at most [`MOST`] of each protocol, the oldest first, and their number |
//! | `DELETE clients/PROTOCOL/NUMBER` | ends a connection |
//!
//! Everything else on the page comes from the metrics, from Pulsar's administration, and from
//! `mqtt` and `tubemq`.

use serde_json::{Value, json};

use super::message::Answer;
use crate::stats::ClientStats;

/// Clients of a protocol that are listed.
pub(super) const MOST: usize = 1000;

/// Limits of the page: it loads its two files, asks this broker, and is shown in no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const FILES: [(&str, &str, &str); 3] = [
    ("", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
];

/// Whether a path is one of the page's files. They say nothing about this broker, so they need no
/// token.
pub(super) fn is_open(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|name| FILES.iter().any(|(of, ..)| *of == name))
}

/// A file by its name.
pub(super) fn file(name: &str) -> Answer {
    let Some((_, content_type, text)) = FILES.into_iter().find(|(of, ..)| *of == name) else {
        return Answer::not_found();
    };
    let answer = Answer::new(content_type, text).with_header("Content-Security-Policy", POLICY);
    answer.with_header("Referrer-Policy", "no-referrer")
}

/// Whether a client has a text in its protocol, address, user or name, whatever its case.
pub(super) fn has(protocol: &str, client: &ClientStats, text: &str) -> bool {
    let text = text.to_lowercase();
    let parts = [protocol, &client.address, client.user.as_deref().unwrap_or_default(), &client.name];
    text.is_empty() || parts.iter().any(|part| part.to_lowercase().contains(&text))
}

/// A client in the list.
pub(super) fn client(protocol: &str, client: &ClientStats) -> Value {
    json!({
        "protocol": protocol,
        "number": client.id,
        "address": client.address,
        "seconds": client.age.as_secs(),
        "user": client.user,
        "name": client.name,
        "producers": client.producers,
        "consumers": client.consumers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_load_nothing_but_each_other() {
        let [html, css, script] = FILES.map(|(_, _, text)| text);
        for text in [html, css, script] {
            for foreign in ["https://", "//cdn", "@import"] {
                assert!(!text.contains(foreign), "{foreign}");
            }
        }
        // The policy allows neither in the page itself.
        for inline in ["<style", " style=", "<script>", " onclick=", "javascript:"] {
            assert!(!html.contains(inline), "{inline}");
        }
        assert!(!script.contains("innerHTML"), "texts of clients are no markup");
        for (name, ..) in &FILES[1..] {
            assert!(html.contains(&format!("\"/{name}\"")), "{name}");
        }
    }

    #[test]
    fn only_the_exact_paths_are_open() {
        assert!(is_open("/") && is_open("/page.js") && is_open("/page.css"));
        for other in ["", "//", "/page.js/", "/Page.js", "/page", "/index.html", "/forebay/v1/clients"] {
            assert!(!is_open(other), "{other}");
        }
    }
}
