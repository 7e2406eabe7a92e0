//! Lines of the files of users and permissions.

use forebay_base::error::{Error, ErrorKind, Result, shown};
use forebay_base::random::HashMap;

/// Error of a line, which names it.
pub(crate) fn mistake(option: &str, number: usize, why: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("{option}, line {number}: {why}"))
}

/// Calls `take` with the number of each line and the line without the spaces before it. Empty lines
/// and lines that begin with `#` are ignored, as is a byte order mark, which editors write.
pub(crate) fn each<'t>(
    option: &str,
    text: &'t str,
    mut take: impl FnMut(usize, &'t str) -> std::result::Result<(), String>,
) -> Result<()> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in (1..).zip(text.lines()) {
        let start = line.trim_start();
        // In comments also: a file whose lines end with CR alone is one line.
        let read = match line.chars().find(|c| c.is_control() && *c != '\t') {
            Some('\r') => Err("a carriage return without a line feed: end lines with LF or CRLF".into()),
            Some(c) => Err(format!("the control character {}: remove it", c.escape_default())),
            None if start.is_empty() || start.starts_with('#') => Ok(()),
            None => take(number, start),
        };
        read.map_err(|why| mistake(option, number, &why))?;
    }
    Ok(())
}

/// Users of a file by name.
///
/// `split` divides a line into the name and what `parse` reads; `form` is what a line should be.
pub(crate) fn users<T>(
    option: &str,
    text: &str,
    form: &str,
    split: impl Fn(&str) -> Option<(&str, &str)>,
    parse: impl Fn(&str) -> std::result::Result<T, String>,
) -> Result<HashMap<String, T>> {
    let mut found: HashMap<String, (usize, T)> = HashMap::default();
    each(option, text, |number, line| {
        let (name, rest) = split(line).ok_or_else(|| format!("expected {form}"))?;
        let name = name.trim();
        if name.is_empty() {
            return Err("the user name is empty".into());
        }
        if name.contains(char::is_control) {
            return Err("the user name has a tab in it".into());
        }
        match found.insert(name.to_owned(), (number, parse(rest)?)) {
            None => Ok(()),
            Some((first, _)) => {
                Err(format!("the user {} is in line {first}, too: keep one of the lines", shown(name)))
            }
        }
    })?;
    Ok(found.into_iter().map(|(name, (_, value))| (name, value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> std::result::Result<Vec<(String, String)>, String> {
        let parse = |rest: &str| if rest == "?" { Err("no value".into()) } else { Ok(rest.to_owned()) };
        let mut found: Vec<_> = users("users", text, "name:value", |line| line.split_once(':'), parse)
            .map_err(|error| error.message().to_owned())?
            .into_iter()
            .collect();
        found.sort();
        Ok(found)
    }

    #[test]
    fn names_are_what_stands_in_the_line() {
        let own = |pairs: &[(&str, &str)]| {
            Ok(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
        };
        assert_eq!(
            read("\u{feff}ann:1\r\n  # bob:2\n\t\n #\ttab\n  carl : 3 \n"),
            own(&[("ann", "1"), ("carl", " 3 ")])
        );
        assert_eq!(read("\u{feff}"), own(&[]));
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said_with_its_number() {
        for (text, why) in [
            ("ann:1\nbob:2\nann:3\n", "users, line 3: the user \"ann\" is in line 1, too"),
            ("ann:1\n ann :1", "line 2: the user \"ann\" is in line 1, too"),
            ("ann:1\rbob:2\r", "line 1: a carriage return without a line feed"),
            ("# users\rann:1\r", "line 1: a carriage return without a line feed"),
            ("ann:1\r", "line 1: a carriage return without a line feed"),
            ("ann:1\nb\0b:1", "line 2: the control character \\u{0}"),
            ("a\x1bn:1", "line 1: the control character \\u{1b}"),
            ("a\tn:1", "line 1: the user name has a tab in it"),
            ("ann", "line 1: expected name:value"),
            (" :1", "line 1: the user name is empty"),
            ("ann:1\nbob:?", "line 2: no value"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
        let long = format!("{0}:1\n{0}:2", "n".repeat(10_000));
        assert!(read(&long).unwrap_err().len() < 200);
    }
}
