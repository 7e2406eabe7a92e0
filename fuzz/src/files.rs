//! Databases that are damaged.

use std::path::{Path, PathBuf};

use forebay_sqlite::Connection;

use crate::script::Script;

/// A folder of this process.
pub fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("forebay-fuzz-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Puts `template` to `path`, damaged as the input says: rows first, then bytes. `renew` follows
/// the damage to rows.
pub fn damage(
    path: &Path,
    template: &[u8],
    columns: &[(&str, &str)],
    renew: impl FnOnce(&Connection),
    script: &mut Script<'_>,
) {
    for end in ["-wal", "-shm", "-journal"] {
        let mut beside = path.as_os_str().to_owned();
        beside.push(end);
        let _ = std::fs::remove_file(beside);
    }
    std::fs::write(path, template).expect("room");
    let rows = script.byte() % 8;
    if rows > 0 {
        let db = Connection::open(path).expect("the template");
        for _ in 0..rows {
            let (table, column) = columns[usize::from(script.byte()) % columns.len()];
            let value = match script.byte() % 6 {
                0 => "NULL".to_owned(),
                1 => (script.number() as i64).to_string(),
                2 => format!("{column} + {}", i64::from(script.byte()) - 128),
                3 => format!("'{}'", script.text().replace(['\'', '\0'], "")),
                4 => {
                    let size = usize::from(script.byte());
                    format!(
                        "x'{}'",
                        script.take(size).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
                    )
                }
                // One byte of the value.
                _ => {
                    let (at, byte) = (script.byte(), script.byte());
                    format!(
                        "CAST(substr({column}, 1, {at}) || x'{byte:02x}' || substr({column}, {at} + 2) AS BLOB)"
                    )
                }
            };
            // A constraint may refuse it.
            let _ = db.execute(&format!("UPDATE {table} SET \"{column}\" = {value}"), []);
        }
        renew(&db);
    }
    let flips = script.byte() % 8;
    if flips > 0 {
        let mut bytes = std::fs::read(path).expect("just written");
        for _ in 0..flips {
            let at = usize::from(script.short()) * 7 % bytes.len();
            bytes[at] ^= script.byte();
        }
        if script.byte() == 255 {
            bytes.truncate(usize::from(script.short()) * 7 % bytes.len());
        }
        std::fs::write(path, bytes).expect("room");
    }
}
