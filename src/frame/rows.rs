//! Messages in one buffer, so that a million rows are not a million allocations.

/// One row of [`Rows`].
#[derive(Debug)]
pub struct RowRef<'a> {
    /// Payload; empty for a tombstone.
    pub payload: &'a [u8],
    /// Key.
    pub key: Option<&'a str>,
    /// Names and values.
    pub properties: &'a [(&'a str, &'a str)],
    /// Milliseconds since 1970; 0 without an event time.
    pub event_time: u64,
    /// Whether it is a tombstone.
    pub null_value: bool,
}

/// Messages that wait to be pushed.
#[derive(Debug, Default)]
pub struct Rows {
    bytes: Vec<u8>,
    text: String,
    rows: Vec<Row>,
    /// Names and values of all rows.
    properties: Vec<(String, String)>,
}

#[derive(Debug)]
struct Row {
    payload_end: usize,
    /// End of the key in `text`; `None` without a key.
    key_end: Option<usize>,
    properties_end: usize,
    event_time: u64,
    null_value: bool,
}

impl Rows {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes of all payloads.
    pub fn payload_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Names and values of the properties of all rows.
    pub fn properties(&self) -> &[(String, String)] {
        &self.properties
    }

    /// Adds a payload with its key.
    pub fn push(&mut self, payload: &[u8], key: Option<&str>) {
        self.push_row(Some(payload), key, 0, &[]);
    }

    /// Adds a row; without a payload it is a tombstone.
    pub fn push_row(
        &mut self,
        payload: Option<&[u8]>,
        key: Option<&str>,
        event_time: u64,
        properties: &[(String, String)],
    ) {
        self.bytes.extend_from_slice(payload.unwrap_or_default());
        self.text.push_str(key.unwrap_or_default());
        self.properties.extend_from_slice(properties);
        self.rows.push(Row {
            payload_end: self.bytes.len(),
            key_end: key.map(|_| self.text.len()),
            properties_end: self.properties.len(),
            event_time,
            null_value: payload.is_none(),
        });
    }
}

/// A place in [`Rows`], at the next row to push.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    next: usize,
    payload_at: usize,
    key_at: usize,
    properties_at: usize,
}

impl Cursor {
    /// The rows from the next one on. `properties` are those of all rows.
    pub fn rows<'a>(
        &self,
        rows: &'a Rows,
        properties: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = RowRef<'a>> + use<'a> {
        let mut at = *self;
        std::iter::from_fn(move || {
            let row = rows.rows.get(at.next)?;
            let found = RowRef {
                payload: &rows.bytes[at.payload_at..row.payload_end],
                key: row.key_end.map(|end| &rows.text[at.key_at..end]),
                properties: &properties[at.properties_at..row.properties_end],
                event_time: row.event_time,
                null_value: row.null_value,
            };
            at.advance(rows);
            Some(found)
        })
    }

    /// Moves behind the next row.
    pub fn advance(&mut self, rows: &Rows) {
        if let Some(row) = rows.rows.get(self.next) {
            self.next += 1;
            self.payload_at = row.payload_end;
            self.key_at = row.key_end.unwrap_or(self.key_at);
            self.properties_at = row.properties_end;
        }
    }

    /// Number of rows from the next one on.
    pub fn left(&self, rows: &Rows) -> usize {
        rows.rows.len() - self.next
    }
}
