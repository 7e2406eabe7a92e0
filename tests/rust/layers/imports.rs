//! Imports between the files of the broker, of the client and of the bindings: no circle, no protocol that imports
//! another, and nothing neutral that imports a protocol. To hold another directory to the same rules, add a row to [`RULES`].
//!
//! An import is a `use` of `crate::...` or `super::...`, a `use` of a child module, or such a path in the code. A
//! `pub use` and a `mod` only give names to what others import, and do not count. Tests do not count either.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Rules for the files of a directory.
struct Rule {
    directory: &'static str,
    /// Sub-directories that do not import each other, and that no other file imports.
    siblings: &'static [&'static str],
    /// Files that put the siblings together and may import them.
    composition: &'static [&'static str],
}

const RULES: [Rule; 3] = [
    Rule {
        directory: "src/broker",
        siblings: &["pulsar", "mqtt", "tubemq"],
        composition: &["mod.rs", "options.rs", "server.rs"],
    },
    Rule { directory: "src/client", siblings: &["pulsar", "mqtt", "tubemq"], composition: &[] },
    Rule { directory: "src/python", siblings: &["pulsar", "mqtt", "tubemq"], composition: &["mod.rs"] },
];

/// Module path of a file, from `src`: `["broker", "pulsar", "topic"]`.
fn module_of(file: &Path) -> Vec<String> {
    let mut parts: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    parts
}

fn files(directory: &Path, to: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, to);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            to.push(path);
        }
    }
}

/// The code of a file up to its tests, without comments and the contents of string literals.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\n").next().unwrap_or_default();
    let mut out = String::new();
    for line in text.lines() {
        let mut rest = line;
        while let Some((before, after)) = rest.split_once('"') {
            if before.contains("//") {
                break;
            }
            out.push_str(before);
            let end = after.char_indices().find(|(at, c)| *c == '"' && !after[..*at].ends_with('\\'));
            rest = end.map_or("", |(at, _)| &after[at + 1..]);
        }
        out.push_str(rest.split("//").next().unwrap_or_default());
        out.push('\n');
    }
    out
}

/// Expands `a::{b, c::{d, e}}` to `a::b`, `a::c::d`, `a::c::e`.
fn expand(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, inner)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap_or_default().trim().to_owned()];
    };
    let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
    let (mut depth, mut start, mut all) = (0, 0, Vec::new());
    for (at, character) in inner.char_indices().chain([(inner.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = inner[start..at].trim();
                start = at + 1;
                if !part.is_empty() {
                    all.extend(expand(part).into_iter().map(|part| format!("{prefix}{part}")));
                }
            }
            _ => {}
        }
    }
    all
}

/// Paths that a file imports, as they are written.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = code.to_owned();
    // `use` statements that are not re-exports.
    for statement in code.split(';') {
        let Some(at) = statement.rfind("use ") else { continue };
        let before = statement[..at].trim_end();
        let line_start = statement[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let public = statement[line_start..at].trim_start().starts_with("pub");
        let keyword =
            before.is_empty() || !before.ends_with(|c: char| c.is_alphanumeric() || c == '_') || public;
        if !keyword {
            continue;
        }
        let tree = &statement[at + 4..];
        rest = rest.replace(&format!("use {tree};"), "");
        if !public {
            found.extend(expand(tree));
        }
    }
    // Paths in the code.
    for start in ["crate::", "super::"] {
        let mut from = 0;
        while let Some(at) = rest[from..].find(start).map(|at| at + from) {
            let end = rest[at..].find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(0);
            let path = rest[at..at + end].trim_end_matches(':');
            // `pub(super)`, `pub(in crate::a)` and the middle of a longer path begin no path.
            if !rest[..at].ends_with("::") && !rest[..at].ends_with("(in ") && path.len() + 2 > start.len() {
                found.push(path.to_owned());
            }
            from = at + end.max(1);
        }
    }
    found
}

/// Files that each file of `rule` imports, by their path below its directory.
fn imports(rule: &Rule) -> BTreeMap<String, BTreeSet<String>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(rule.directory);
    let mut all = Vec::new();
    files(&directory, &mut all);
    let name = |file: &Path| file.strip_prefix(&directory).unwrap().to_string_lossy().into_owned();
    let modules: BTreeMap<Vec<String>, String> =
        all.iter().map(|file| (module_of(file.strip_prefix(&source).unwrap()), name(file))).collect();
    assert!(modules.len() > 5, "{} was not read", rule.directory);
    let mut graph = BTreeMap::new();
    for file in &all {
        let module = module_of(file.strip_prefix(&source).unwrap());
        let code = code(&std::fs::read_to_string(file).unwrap());
        let mut to = BTreeSet::new();
        for path in paths(&code) {
            let mut parts: Vec<String> = path.split("::").map(|part| part.trim().to_owned()).collect();
            let mut absolute = match parts[0].as_str() {
                "crate" => Vec::new(),
                "self" | "super" => module.clone(),
                _ => [&module[..], &parts[..1]].concat(),
            };
            while parts.first().is_some_and(|part| part == "super") {
                absolute.pop();
                parts.remove(0);
            }
            absolute.extend(parts.into_iter().filter(|part| part != "crate" && part != "self").skip(
                usize::from(
                    !path.starts_with("crate") && !path.starts_with("self") && !path.starts_with("super"),
                ),
            ));
            // The longest prefix that is a file.
            let target = (0..=absolute.len()).rev().find_map(|end| modules.get(&absolute[..end]));
            if let Some(target) = target.filter(|target| **target != name(file)) {
                to.insert(target.clone());
            }
        }
        graph.insert(name(file), to);
    }
    graph
}

/// A circle of files, if there is one.
fn circle(graph: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn visit(
        graph: &BTreeMap<String, BTreeSet<String>>,
        file: &str,
        path: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> bool {
        if let Some(at) = path.iter().position(|before| before == file) {
            path.drain(..at);
            path.push(file.to_owned());
            return true;
        }
        if done.contains(file) {
            return false;
        }
        path.push(file.to_owned());
        if graph.get(file).into_iter().flatten().any(|next| visit(graph, next, path, done)) {
            return true;
        }
        path.pop();
        done.insert(file.to_owned());
        false
    }
    let mut done = BTreeSet::new();
    graph.keys().find_map(|file| {
        let mut path = Vec::new();
        visit(graph, file, &mut path, &mut done).then_some(path)
    })
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    for rule in &RULES {
        let circle = circle(&imports(rule));
        assert!(circle.is_none(), "{}: {}", rule.directory, circle.unwrap_or_default().join(" -> "));
    }
}

#[test]
fn siblings_are_imported_only_where_they_are_put_together() {
    for rule in &RULES {
        let sibling = |file: &str| {
            rule.siblings.iter().find(|sibling| {
                file.strip_prefix(**sibling).is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
            })
        };
        let graph = imports(rule);
        for sibling in rule.siblings {
            let imported = |to: &BTreeSet<String>| to.iter().any(|file| file.starts_with(*sibling));
            assert!(graph.values().any(imported), "{}: nothing imports {sibling}", rule.directory);
        }
        for (file, to) in graph {
            for target in to {
                let allowed = sibling(&target).is_none()
                    || sibling(&target) == sibling(&file)
                    || rule.composition.contains(&file.as_str());
                assert!(allowed, "{}: {file} imports {target}", rule.directory);
            }
        }
    }
}

#[test]
fn imports_are_found_however_they_are_written() {
    let text = "//! use crate::a::no;\nuse super::b::{c, d::{self, E}};\npub use f::G;\nuse h::I as J;\n\
                pub(super) fn k() { crate::l::m(\"super::no\") } // super::no\n";
    let found: BTreeSet<String> = paths(&code(text)).into_iter().collect();
    let expected = ["super::b::c", "super::b::d::self", "super::b::d::E", "h::I", "crate::l::m"];
    assert_eq!(found, expected.into_iter().map(str::to_owned).collect());
    let graph = |edges: &[(&str, &str)]| {
        let mut graph = BTreeMap::<String, BTreeSet<String>>::new();
        for (from, to) in edges {
            graph.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        graph
    };
    assert_eq!(circle(&graph(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    assert_eq!(circle(&graph(&[("a", "b"), ("b", "c"), ("c", "b")])).unwrap(), ["b", "c", "b"]);
}
