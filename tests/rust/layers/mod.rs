//! The cores do no input or output: without features neither tokio nor pyo3 is in the graph.

use std::process::Command;

mod imports;

fn crates(arguments: &[&str]) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
        .args(["--edges", "normal", "--prefix", "none", "--format", "{lib}", "--no-default-features"])
        .args(arguments)
        .output()
        .expect("cargo is there: it runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn the_cores_know_neither_tokio_nor_python_nor_a_database() {
    let crates = crates(&[]);
    assert!(crates.iter().any(|name| name == "prost"), "the graph was not read: {crates:?}");
    for name in ["tokio", "mio", "socket2", "pyo3", "rusqlite", "rustls"] {
        assert!(!crates.iter().any(|present| present == name), "{name} is in the graph of the cores");
    }
}

#[test]
fn the_client_and_the_broker_know_no_python() {
    for features in ["client", "broker"] {
        let crates = crates(&["--features", features]);
        assert!(crates.iter().any(|name| name == "tokio"), "the graph was not read: {crates:?}");
        assert!(!crates.iter().any(|name| name.starts_with("pyo3")), "pyo3 is in the graph of {features}");
    }
}
