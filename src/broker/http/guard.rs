//! Rules by which requests are refused.
//!
//! | request | without tokens, or from an anonymous listener | with tokens |
//! |---|---|---|
//! | for the files of the page for operators | answered, if the row about `Host` allows it | answered |
//! | of a page of another site, by `Origin` or `Sec-Fetch-Site` | refused | refused |
//! | whose `Host` is a name that could be a stranger's | refused | answered |
//! | without a valid token | answered | refused, but for health checks |
//!
//! A page on the web can have its visitors' browsers send requests to this machine, and its owner
//! can let the page's own name resolve to this machine's address (DNS rebinding). Browsers tell by
//! the first two headers where a page is from, and by `Host` which name they resolved: an address
//! and `localhost` cannot be taken. A page has no token. A client whose certificate names it needs
//! none: only the row about pages of other sites is for it, as no page has a certificate for the
//! broker's name.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::http::Uri;
use hyper::http::uri::Authority;

use super::message::Answer;
use super::{health, page};
use crate::auth::TokenKeys;
use crate::protocol::Entry;

/// Set by browsers: how the page that sends a request and its address belong together.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Decides whose requests are answered, as the [module](self) describes.
#[derive(Debug)]
pub(crate) struct Guard {
    tokens: Option<Arc<TokenKeys>>,
    /// Names of this machine, in lower case.
    hosts: Vec<String>,
}

impl Guard {
    /// With the key of tokens, and hosts or URLs that have names of this machine.
    pub(crate) fn new<'a>(tokens: Option<Arc<TokenKeys>>, hosts: impl IntoIterator<Item = &'a str>) -> Self {
        let name = |text: &str| {
            let authority = text.split_once("://").map_or(text, |(_, rest)| rest);
            let authority = authority.strip_suffix('/').unwrap_or(authority);
            Some(authority.parse::<Authority>().ok()?.host().to_ascii_lowercase())
        };
        Self { tokens, hosts: hosts.into_iter().filter_map(name).collect() }
    }

    /// The user of a request, if its certificate or its token names one, or its refusal.
    pub(super) fn check(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        entry: &Entry,
        wall_ms: u64,
    ) -> Result<Option<String>, Box<Answer>> {
        let refused = |status, why: &str| Err(Box::new(Answer::error(status, why)));
        let Ok(host) = host(uri, headers) else {
            return refused(StatusCode::BAD_REQUEST, "the request names no host, or several");
        };
        // Links to the page are for everybody to follow.
        let open = page::is_open(uri.path());
        if !open && is_cross_site(headers, &host) {
            return refused(StatusCode::FORBIDDEN, "pages of other sites may not use this broker");
        }
        if let Some(user) = &entry.user {
            return Ok(Some(user.to_string()));
        }
        match self.tokens.as_ref().filter(|_| !entry.anonymous) {
            None if !self.is_ours(host.host()) => refused(
                StatusCode::MISDIRECTED_REQUEST,
                "a broker without tokens answers only requests to an address, to localhost, and to the names in \
                 its options host, advertised_host and advertised_url",
            ),
            Some(tokens) if !open && !health::is_open(uri.path()) => {
                let claims = token(headers).and_then(|token| tokens.verify(token, wall_ms).ok());
                // The reason is not sent: it would help an attacker.
                let refusal = || Answer::error(StatusCode::UNAUTHORIZED, "a valid token is required");
                match claims {
                    Some(claims) => Ok(Some(claims.subject)),
                    None => Err(Box::new(refusal().with_header("WWW-Authenticate", "Bearer"))),
                }
            }
            _ => Ok(None),
        }
    }

    /// Whether no stranger can have the name.
    fn is_ours(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        is_address || host == "localhost" || host.ends_with(".localhost") || self.hosts.contains(&host)
    }
}

/// The host that the request is for.
fn host(uri: &Uri, headers: &HeaderMap) -> Result<Authority, ()> {
    let mut named = headers.get_all(HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else { return Err(()) };
    let host: Authority = host.to_str().map_err(drop)?.parse().map_err(drop)?;
    // A request to a proxy has the host in its first line, too.
    let agree = uri.authority().is_none_or(|other| *other == host);
    if agree && !host.host().is_empty() && !host.as_str().contains('@') { Ok(host) } else { Err(()) }
}

/// Whether a page of another site sends the request.
fn is_cross_site(headers: &HeaderMap, host: &Authority) -> bool {
    let same =
        |origin: &str| origin.parse::<Uri>().ok().is_some_and(|origin| origin.authority() == Some(host));
    let foreign = |value: &hyper::header::HeaderValue| !value.to_str().is_ok_and(same);
    let apart =
        |value: &hyper::header::HeaderValue| !["same-origin", "none"].iter().any(|known| value == known);
    headers.get_all(ORIGIN).iter().any(foreign) || headers.get_all(FETCH_SITE).iter().any(apart)
}

fn token(headers: &HeaderMap) -> Option<&[u8]> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (all.next(), all.next()) else { return None };
    let (scheme, token) = value.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    const NOW_MS: u64 = 1_000_000;

    /// The status of the refusal, if there is one.
    fn ask(guard: &Guard, uri: &str, headers: &[(&str, &str)]) -> Option<u16> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        guard
            .check(request.uri(), request.headers(), &Entry::default(), NOW_MS)
            .err()
            .map(|answer| answer.status.as_u16())
    }

    #[test]
    fn without_tokens_a_name_that_could_be_a_strangers_is_refused() {
        let guard = Guard::new(None, ["0.0.0.0", "pulsar://Till.Example:6650", "PULSAR://ann.example:6650/"]);
        for ours in [
            "127.0.0.1:8080",
            "[::1]:8080",
            "10.0.0.7",
            "localhost:1",
            "LOCALHOST.",
            "a.localhost",
            "till.example:8080",
            "ann.example:8080",
        ] {
            assert_eq!(ask(&guard, "/metrics", &[("host", ours)]), None, "{ours}");
        }
        for other in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "127.1.nip.io"] {
            assert_eq!(ask(&guard, "/metrics", &[("host", other)]), Some(421), "{other}");
            assert_eq!(ask(&guard, "/healthz", &[("host", other)]), Some(421), "{other}");
        }
    }

    #[test]
    fn a_request_has_one_host() {
        let guard = Guard::new(None, []);
        for headers in [
            &[][..],
            &[("host", "127.0.0.1"), ("host", "localhost")],
            &[("host", "")],
            &[("host", "a b")],
            &[("host", "evil@127.0.0.1")],
        ] {
            assert_eq!(ask(&guard, "/metrics", headers), Some(400), "{headers:?}");
        }
        assert_eq!(ask(&guard, "http://evil.example/metrics", &[("host", "127.0.0.1")]), Some(400));
    }

    #[test]
    fn pages_of_other_sites_are_refused_and_those_of_this_broker_are_not() {
        let key = TokenKeys::new(&[b'7'; 32]).unwrap();
        let token = format!("Bearer {}", key.sign("till", None));
        let host = ("host", "127.0.0.1:8080");
        for guard in [Guard::new(None, []), Guard::new(Some(Arc::new(key)), [])] {
            let ask =
                |header: (&str, &str)| ask(&guard, "/metrics", &[host, ("authorization", &token), header]);
            for foreign in
                ["http://evil.example", "null", "http://127.0.0.1", "http://127.0.0.1:9090", "", "x"]
            {
                assert_eq!(ask(("origin", foreign)), Some(403), "{foreign}");
            }
            for apart in ["cross-site", "same-site", "", "Same-Origin"] {
                assert_eq!(ask(("sec-fetch-site", apart)), Some(403), "{apart}");
            }
            for own in [
                ("origin", "http://127.0.0.1:8080"),
                ("sec-fetch-site", "same-origin"),
                ("sec-fetch-site", "none"),
            ] {
                assert_eq!(ask(own), None, "{own:?}");
            }
        }
    }

    #[test]
    fn with_tokens_nothing_but_health_is_answered_without_one() {
        let key = TokenKeys::new(&[b'7'; 32]).unwrap();
        let good = format!("Bearer {}", key.sign("till", None));
        let expired = format!("Bearer {}", key.sign("till", Some(NOW_MS)));
        let other = format!("Bearer {}", TokenKeys::new(&[b'8'; 32]).unwrap().sign("till", None));
        let guard = Guard::new(Some(Arc::new(key)), []);
        let host = ("host", "broker.example");
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer x.y.z",
            "Basic dGlsbDp4",
            &expired,
            &other,
            &good["Bearer ".len()..],
        ] {
            assert_eq!(ask(&guard, "/metrics", &[host, ("authorization", wrong)]), Some(401), "{wrong}");
        }
        assert_eq!(ask(&guard, "/metrics", &[host]), Some(401));
        assert_eq!(
            ask(&guard, "/metrics", &[host, ("authorization", &good), ("authorization", &good)]),
            Some(401)
        );
        assert_eq!(ask(&guard, "/metrics", &[host, ("authorization", &good)]), None);
        assert_eq!(
            ask(&guard, "/metrics", &[host, ("authorization", &good.replace("Bearer", "bearer"))]),
            None
        );
        for open in ["/healthz", "/readyz"] {
            assert_eq!(ask(&guard, open, &[host]), None);
        }
        // Of a listener that admits clients without credentials, and of a client with a
        // certificate.
        let check = |host: &str, entry: Entry| {
            let request = Request::builder().uri("/metrics").header("host", host).body(()).unwrap();
            guard.check(request.uri(), request.headers(), &entry, NOW_MS).err().map(|one| one.status.as_u16())
        };
        let anonymous = Entry { anonymous: true, ..Entry::default() };
        assert_eq!(check("127.0.0.1", anonymous.clone()), None);
        assert_eq!(check("evil.example", anonymous), Some(421), "DNS rebinding");
        let certified = Entry { user: Some("till".into()), ..Entry::default() };
        assert_eq!(check("broker.example", certified), None);
        for shut in ["/healthz/x", "/healthz/", "/%68ealthz", "/healthzz"] {
            assert_eq!(ask(&guard, shut, &[host]), Some(401), "{shut}");
        }
    }
}
