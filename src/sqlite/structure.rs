//! The structure of a database, as SQLite's own check sees it.

use rusqlite::{Connection, ffi};

use forebay_base::error::Result;

/// The first place at which SQLite finds the structure of a table damaged, where a row might not be
/// found or be missed; of the whole database without `table`.
pub fn damage(db: &Connection, table: Option<&str>) -> Result<Option<String>> {
    let sql = table
        .map_or("PRAGMA integrity_check(1)".to_owned(), |name| format!("PRAGMA integrity_check('{name}')"));
    let line: String = db.query_row(&sql, [], |row| row.get(0))?;
    if line == "ok" {
        return Ok(None);
    }
    // What the disk does not give is not damaged.
    if let Some(code) = io_error(&line) {
        return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None).into());
    }
    Ok(Some(line))
}

/// The code of the I/O error that a line of the check tells, if it is one.
fn io_error(line: &str) -> Option<i32> {
    let code: i32 = line.split("error code=").nth(1)?.trim().parse().ok()?;
    (code & 0xff == ffi::SQLITE_IOERR).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder must not be restored because a cable is loose.
    #[test]
    fn what_the_disk_does_not_give_is_told_from_damage() {
        let page = |code: i32| io_error(&format!("Tree 5 page 7: unable to get the page. error code={code}"));
        assert_eq!(page(ffi::SQLITE_IOERR), Some(ffi::SQLITE_IOERR));
        assert_eq!(page(ffi::SQLITE_IOERR_READ), Some(ffi::SQLITE_IOERR_READ));
        assert_eq!(page(ffi::SQLITE_CORRUPT), None);
        assert_eq!(io_error("row 1 missing from index i"), None);
    }
}
