//! Requests and answers, without sockets.

use bytes::Bytes;
use hyper::http::Uri;
use hyper::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

/// Limit on the bytes of path and query: three for each of a name of 1,024, and some for the rest.
const URI: usize = 8 << 10;

/// A request that may be answered: its sender is known.
#[derive(Clone, Debug)]
pub struct Request {
    /// Method.
    pub method: Method,
    /// Parts of the path, decoded. None is empty, `.` or `..`.
    pub path: Vec<String>,
    /// Names and values of the query, decoded. MQTT's topics may have control characters, so they
    /// may, too.
    pub query: Vec<(String, String)>,
    /// Body.
    pub body: Bytes,
    /// Subject of its token, if the broker asks for tokens.
    pub user: Option<String>,
}

impl Request {
    /// Reads method, path and query. An answer says what is wrong with them.
    pub fn new(method: Method, uri: &Uri) -> Result<Self, Box<Answer>> {
        let refused = |status, why: &str| Err(Box::new(Answer::error(status, why)));
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        if path.len() + query.len() > URI {
            return refused(StatusCode::URI_TOO_LONG, "the path of the request is too long");
        }
        let Some(inner) = path.strip_prefix('/') else {
            return refused(StatusCode::BAD_REQUEST, "the path of the request does not begin with /");
        };
        let mut parts = Vec::new();
        for part in inner.strip_suffix('/').unwrap_or(inner).split('/') {
            let whole = |part: &String| !part.is_empty() && part != "." && part != "..";
            match decoded(part).filter(|part| whole(part) && !part.contains(char::is_control)) {
                Some(part) => parts.push(part),
                None if inner.is_empty() => {}
                None => return refused(StatusCode::BAD_REQUEST, "the path of the request is malformed"),
            }
        }
        let Some(query) = pairs(query) else {
            return refused(StatusCode::BAD_REQUEST, "the query of the request is malformed");
        };
        Ok(Self { method, path: parts, query, body: Bytes::new(), user: None })
    }

    /// Value of a name in the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    /// Whether a name in the query is `true`.
    pub fn flag(&self, name: &str) -> bool {
        self.query(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }
}

/// Decodes the names and values of a query.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let decode = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decoded(&name.replace('+', " "))?, decoded(&value.replace('+', " "))?))
    };
    text.split('&').filter(|pair| !pair.is_empty()).map(decode).collect()
}

/// Decodes `%` and two hexadecimal digits; anything else behind a `%`, and what is not UTF-8, is
/// refused.
fn decoded(text: &str) -> Option<String> {
    let digits =
        |rest: &str| rest.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    if !text.split('%').skip(1).all(digits) {
        return None;
    }
    Some(percent_decode_str(text).decode_utf8().ok()?.into_owned())
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// Type of the body.
    pub content_type: &'static str,
    /// Further headers. What cannot stand in one, or is too long for many clients, is left out.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Bytes,
}

impl Answer {
    /// Bytes of a type.
    pub fn new(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status: StatusCode::OK, content_type, headers: Vec::new(), body: body.into() }
    }

    /// JSON.
    pub fn json(value: &Value) -> Self {
        Self::new("application/json", value.to_string())
    }

    /// Success without a body.
    pub fn done() -> Self {
        Self { status: StatusCode::NO_CONTENT, ..Self::new("application/json", Bytes::new()) }
    }

    /// An error with its reason.
    pub fn error(status: StatusCode, reason: &str) -> Self {
        Self { status, ..Self::json(&json!({ "reason": reason })) }
    }

    /// A path at which there is nothing.
    pub fn not_found() -> Self {
        Self::error(StatusCode::NOT_FOUND, "HTTP 404 Not Found")
    }

    /// A method that the path does not have.
    pub fn wrong_method() -> Self {
        Self::error(StatusCode::METHOD_NOT_ALLOWED, "HTTP 405 Method Not Allowed")
    }

    /// Something that the broker cannot do at the moment.
    pub fn unavailable(reason: &str) -> Self {
        Self::error(StatusCode::SERVICE_UNAVAILABLE, reason)
    }

    /// With another header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(uri: &str) -> Result<Request, StatusCode> {
        Request::new(Method::GET, &uri.parse().unwrap()).map_err(|answer| answer.status)
    }

    #[test]
    fn paths_and_queries_are_decoded() {
        let request = read("/a/b%20c+d%2Fe%C3%BC/?f=g+h%2B&i&j=true").unwrap();
        assert_eq!(request.path, ["a", "b c+d/eü"]);
        assert_eq!(
            (request.query("f"), request.query("i"), request.query("x")),
            (Some("g h+"), Some(""), None)
        );
        assert!(request.flag("j") && !request.flag("f"));
        assert!(read("/").unwrap().path.is_empty());
        assert_eq!(read("/?topic=a%09b").unwrap().query("topic"), Some("a\tb"));
    }

    #[test]
    fn tricks_with_paths_are_refused() {
        for bad in [
            "/a/../b",
            "/a/%2e%2e/b",
            "/a//b",
            "//",
            "/./a",
            "/a%2",
            "/a%zz",
            "/a%ff",
            "/a%00",
            "/a%0a",
            "*",
            "/?a=%",
            "/a/%2E",
        ] {
            assert_eq!(read(bad).unwrap_err(), StatusCode::BAD_REQUEST, "{bad}");
        }
        let long = format!("/{}", "x".repeat(URI));
        assert_eq!(read(&long).unwrap_err(), StatusCode::URI_TOO_LONG);
    }
}
