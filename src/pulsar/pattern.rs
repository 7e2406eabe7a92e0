//! Patterns of topics: regular expressions over the topics of one namespace.
//!
//! A pattern is matched as in the official clients: against the whole name without its domain and
//! partition, `tenant/namespace/topic`. The syntax is that of RE2, which brokers use as well:
//! without look-around and back-references, so that matching takes linear time whatever the
//! pattern.

use regex::{Regex, RegexBuilder};

use crate::pb::command_get_topics_of_namespace::Mode;
use crate::topic::TopicName;
use forebay_base::checksum::crc32c;
use forebay_base::error::{Error, ErrorKind, Result};

/// Limit on the length of a pattern of this client.
pub const MAX_PATTERN: usize = 4096;
/// Memory of a compiled pattern of this client, in bytes.
const PROGRAM: usize = 1 << 20;

/// Limit on the length of a pattern of brokers, by default.
const BROKERS_LIMIT: usize = 50;

/// A pattern of topics.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    /// Pattern that brokers are asked for.
    wire: String,
    namespace: String,
    domain: Mode,
    regex: Regex,
}

impl Pattern {
    /// Parses a pattern such as `persistent://tenant/namespace/orders-.*`; without tenant and
    /// namespace it is of `public/default`. `flags` are those of the regular expression, of `imsx`.
    /// Without `domain` the pattern says it, or it is persistent.
    pub fn parse(text: &str, flags: &str, domain: Option<Mode>) -> Result<Self> {
        let refused = |why: String| {
            Error::new(ErrorKind::InvalidArgument, format!("the pattern of topics {text:?} {why}"))
        };
        if text.len() > MAX_PATTERN {
            return Err(refused(format!("has {} bytes: at most {MAX_PATTERN} are allowed", text.len())));
        }
        let inline = if flags.is_empty() { String::new() } else { format!("(?{flags})") };
        check_syntax(&inline, text).map_err(refused)?;
        let open = text.strip_prefix('^').unwrap_or(text);
        let domain = domain.unwrap_or(if open.starts_with("non-persistent://") {
            Mode::NonPersistent
        } else {
            Mode::Persistent
        });
        let name = without_domain(open);
        let (namespace, local) = match name.splitn(3, '/').collect::<Vec<_>>()[..] {
            [local] => ("public/default".to_owned(), local),
            [tenant, namespace, local] => {
                let plain = |part: &str| part.replace("\\-", "-").replace("\\.", ".").replace("\\_", "_");
                (format!("{}/{}", plain(tenant), plain(namespace)), local)
            }
            _ => {
                return Err(refused(
                    "is not of one namespace: use NAME, TENANT/NAMESPACE/NAME or persistent://TENANT/NAMESPACE/NAME".into(),
                ));
            }
        };
        if TopicName::parse(&format!("{namespace}/x")).is_err() {
            return Err(refused(format!(
                "is not of one namespace: {namespace:?} must be spelled out, only the name of the topic may be a regular expression"
            )));
        }
        let spelled = namespace.replace('.', "\\.");
        // An alternative may repeat the namespace.
        let names = local.replace(&format!("|{namespace}/"), "|");
        // A comment ends with its line.
        let end = if flags.contains('x') { "\n" } else { "" };
        let regex = RegexBuilder::new(&format!("{inline}\\A{spelled}/(?:{names}{end})\\z"))
            .size_limit(PROGRAM)
            .dfa_size_limit(PROGRAM)
            .build()
            .map_err(|error| refused(format!("cannot be used: {}", one_line(&error.to_string()))))?;
        let mut wire = format!("persistent://{namespace}/{local}");
        // Brokers know no flags, anchor differently, take classes such as \w for ASCII, and refuse
        // to watch for long patterns: they are asked for all names.
        let is_other = local.contains(['^', '$', '|']) || has_class(local);
        if !inline.is_empty() || is_other || wire.len() > BROKERS_LIMIT {
            wire = format!("persistent://{namespace}/.*");
        }
        Ok(Self { text: text.to_owned(), wire, namespace, domain, regex })
    }

    /// The pattern as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The pattern for brokers, which may match more topics.
    pub fn wire(&self) -> &str {
        &self.wire
    }

    /// Tenant and namespace, as `tenant/namespace`.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The domain of the topics.
    pub fn domain(&self) -> Mode {
        self.domain
    }

    /// Whether the topic is one of the pattern's. A partition is, if its topic is.
    pub fn matches(&self, topic: &TopicName) -> bool {
        let of_domain = match self.domain {
            Mode::Persistent => topic.is_persistent(),
            Mode::NonPersistent => !topic.is_persistent(),
            Mode::All => true,
        };
        of_domain
            && topic.namespace() == self.namespace
            && self.regex.is_match(without_domain(&topic.without_partition().to_string()))
    }
}

/// Hash of a list of topics, which tells whether it is the one that is known: CRC-32C of the sorted
/// names, joined by commas.
pub fn hash_of<'a>(sorted: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = 0;
    for (index, name) in sorted.into_iter().enumerate() {
        if index > 0 {
            hash = crc32c(hash, b",");
        }
        hash = crc32c(hash, name.as_bytes());
    }
    format!("{:08x}", hash.swap_bytes())
}

/// A name or pattern without its domains.
pub fn without_domain(name: &str) -> &str {
    let rest = name.strip_prefix("non-").unwrap_or(name);
    rest.strip_prefix("persistent://").unwrap_or(name)
}

/// Whether a pattern has a class of characters or a boundary of words that depends on what a letter
/// is.
fn has_class(pattern: &str) -> bool {
    let mut escaped = false;
    pattern.chars().any(|c| {
        let is_class = escaped && "wWdDsSbBpP".contains(c);
        escaped = c == '\\' && !escaped;
        is_class
    })
}

/// Says where the syntax is wrong.
fn check_syntax(inline: &str, text: &str) -> Result<(), String> {
    let whole = format!("{inline}{text}");
    let (what, at) = match regex_syntax::parse(&whole) {
        Ok(_) => return Ok(()),
        Err(regex_syntax::Error::Parse(error)) => (error.kind().to_string(), error.span().start.offset),
        Err(regex_syntax::Error::Translate(error)) => (error.kind().to_string(), error.span().start.offset),
        Err(error) => (one_line(&error.to_string()), 0),
    };
    let at = text[..at.saturating_sub(inline.len()).min(text.len())].chars().count();
    Err(format!("is no regular expression: {what} at position {at}"))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, topic: &str) -> bool {
        Pattern::parse(pattern, "", Some(Mode::All)).unwrap().matches(&TopicName::parse(topic).unwrap())
    }

    #[test]
    fn the_whole_name_without_domain_and_partition_is_matched() {
        for (pattern, topic, expected) in [
            ("persistent://public/default/orders-.*", "orders-1", true),
            ("persistent://public/default/orders-.*", "my-orders-1", false),
            ("orders-.*", "orders-1", true),
            ("orders", "orders-1", false),
            ("orders", "orders-partition-7", true),
            ("public/default/a|b", "b", true),
            ("public/default/a|b", "ab", false),
            ("public/default/a|public/default/b", "b", true),
            ("t/n/.*", "t/n/x", true),
            ("t/n/.*", "t/m/x", false),
            ("a.b/n/x", "a.b/n/x", true),
            ("^persistent://public/default/a$", "a", true),
            ("persistent://public/default/a", "non-persistent://public/default/a", true),
            (r"persistent://public/my\-ns/a\-.*", "public/my-ns/a-1", true),
            (r"\d+", "42", true),
        ] {
            assert_eq!(matches(pattern, topic), expected, "{pattern} {topic}");
        }
    }

    #[test]
    fn the_domain_is_the_one_given_or_that_of_the_pattern() {
        let of = |text, given| Pattern::parse(text, "", given).unwrap().domain();
        assert_eq!(of("a", None), Mode::Persistent);
        assert_eq!(of("non-persistent://public/default/a", None), Mode::NonPersistent);
        assert_eq!(of("non-persistent://public/default/a", Some(Mode::All)), Mode::All);
        let topic = TopicName::parse("non-persistent://public/default/a").unwrap();
        assert!(!Pattern::parse("a", "", None).unwrap().matches(&topic));
    }

    #[test]
    fn brokers_are_asked_for_at_least_what_matches() {
        let wire = |text, flags| Pattern::parse(text, flags, None).unwrap().wire().to_owned();
        assert_eq!(wire("t/n/a.*", ""), "persistent://t/n/a.*");
        assert_eq!(wire("a.*", ""), "persistent://public/default/a.*");
        assert_eq!(wire("t/n/a.*", "i"), "persistent://t/n/.*");
        assert_eq!(wire("^t/n/a$", ""), "persistent://t/n/.*");
        assert_eq!(wire("t/n/a|b", ""), "persistent://t/n/.*");
        assert_eq!(wire(r"t/n/a\w", ""), "persistent://t/n/.*", "a letter is another thing to brokers");
        assert_eq!(wire(r"t/n/a\.b", ""), r"persistent://t/n/a\.b");
        assert_eq!(wire(r"t/n/a\\w", ""), r"persistent://t/n/a\\w");
        assert_eq!(wire(&format!("t/n/{}", "a".repeat(50)), ""), "persistent://t/n/.*");
        let pattern = Pattern::parse("t/n/A.*", "i", None).unwrap();
        assert!(pattern.matches(&TopicName::parse("t/n/abc").unwrap()));
        let pattern = Pattern::parse("a # | b", "x", None).unwrap();
        assert!(pattern.matches(&TopicName::parse("a").unwrap()), "a comment ends before the pattern does");
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_its_position() {
        let text = |text: &str, flags| {
            let error = Pattern::parse(text, flags, None).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            error.message().to_owned()
        };
        assert!(text("orders-(", "").contains("unclosed group at position 7"), "{}", text("orders-(", ""));
        assert!(text("ü[", "i").contains("at position 1"), "{}", text("ü[", "i"));
        assert!(text("a(?=b)", "").contains("look-around"), "{}", text("a(?=b)", ""));
        assert!(text("t/n.*/a", "").contains("not of one namespace"));
        assert!(text("a/b", "").contains("not of one namespace"));
        assert!(text(&"a".repeat(5000), "").contains("4096"));
        assert!(text("(a{1000}){1000}", "").contains("cannot be used"));
    }

    #[test]
    fn the_hash_is_that_of_the_java_client() {
        assert_eq!(hash_of([]), "00000000");
        // CRC-32C of the standard's example, as Guava prints it.
        assert_eq!(hash_of(["123456789"]), "839206e3");
        assert_eq!(hash_of(["a", "b"]), hash_of(["a,b"]));
    }
}
