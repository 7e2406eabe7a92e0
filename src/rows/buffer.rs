//! Messages in one buffer, so that a million rows are not a million allocations.

use arrow_buffer::Buffer;

use forebay_base::error::Error;
use forebay_base::random::HashMap;

/// One row of [`Rows`].
#[derive(Debug)]
pub struct RowRef<'a> {
    /// Payload; empty for a tombstone.
    pub payload: &'a [u8],
    /// Key.
    pub key: Option<&'a str>,
    /// Whether the key is the Base64 of bytes.
    pub key_is_base64: bool,
    /// Topic, if each row has its own.
    pub topic: Option<&'a str>,
    /// Names and values.
    pub properties: &'a [(&'a str, &'a str)],
    /// Milliseconds since 1970; 0 without an event time.
    pub event_time: u64,
    /// Whether it is a tombstone.
    pub null_value: bool,
    /// Number for deduplication, if the rows have them.
    pub sequence_id: Option<u64>,
    /// Fields that few rows have.
    pub rare: &'a Rare,
}

impl<'a> RowRef<'a> {
    /// A row that has nothing but a payload.
    pub fn of_payload(payload: &'a [u8]) -> Self {
        Self {
            payload,
            key: None,
            key_is_base64: false,
            topic: None,
            properties: &[],
            event_time: 0,
            null_value: false,
            sequence_id: None,
            rare: Rare::NONE,
        }
    }
}

/// Fields that few rows have.
#[derive(Debug, Default)]
pub struct Rare {
    /// Key of Key_Shared subscriptions.
    pub ordering_key: Option<Box<[u8]>>,
    /// Earliest delivery, in milliseconds since 1970.
    pub deliver_at: Option<i64>,
    /// Type of the message, for filters.
    pub message_type: Option<Box<str>>,
    /// QoS, if not the producer's.
    pub qos: Option<u8>,
    /// Retain flag, if not the producer's.
    pub retain: Option<bool>,
    /// Number for deduplication, if the rows are not numbered.
    pub sequence_id: Option<u64>,
    /// Names of the only clusters that get a copy, if there are any.
    pub replicate_to: Option<Box<[String]>>,
    /// Partition, if not that of the routing.
    pub partition: Option<u32>,
}

impl Rare {
    const NONE: &'static Self = &Self {
        ordering_key: None,
        deliver_at: None,
        message_type: None,
        qos: None,
        retain: None,
        sequence_id: None,
        replicate_to: None,
        partition: None,
    };
}

/// A row that was not sent, since it cannot be a message.
#[derive(Debug)]
pub struct BadRow {
    /// Its number.
    pub number: u64,
    /// Why.
    pub error: Error,
    /// Bytes of its payload, if it got one.
    pub bytes: usize,
}

/// The parts of a row.
#[derive(Debug, Default)]
pub struct NewRow<'a> {
    /// Its number, in errors.
    pub number: u64,
    /// Payload.
    pub payload: &'a [u8],
    /// Key.
    pub key: Option<&'a str>,
    /// Topic, if each row has its own.
    pub topic: Option<&'a str>,
    /// Milliseconds since 1970; 0 without an event time.
    pub event_time: u64,
    /// Whether it is a tombstone.
    pub null_value: bool,
    /// Names and values.
    pub properties: &'a [(String, String)],
    /// Fields that few rows have: for all rows, or for none.
    pub rare: Option<Rare>,
}

/// Payloads, one behind the other.
#[derive(Debug)]
enum Payloads {
    Copied(Vec<u8>),
    /// The values of a column, where Arrow has them: they keep the whole batch alive.
    Shared(Buffer),
}

impl Payloads {
    /// The payloads as bytes that grow.
    fn copied(&mut self) -> &mut Vec<u8> {
        if let Self::Shared(values) = self {
            *self = Self::Copied(values.to_vec());
        }
        match self {
            Self::Copied(bytes) => bytes,
            Self::Shared(_) => unreachable!("copied above"),
        }
    }
}

impl Default for Payloads {
    fn default() -> Self {
        Self::Copied(Vec::new())
    }
}

impl std::ops::Deref for Payloads {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Shared(values) => values,
        }
    }
}

/// Messages that wait to be pushed.
#[derive(Debug, Default)]
pub struct Rows {
    payloads: Payloads,
    /// Keys and topics.
    text: String,
    rows: Vec<Row>,
    /// Names and values of all rows.
    properties: Vec<(String, String)>,
    /// One for each row, or none at all.
    rare: Vec<Rare>,
    pub(super) key_is_base64: bool,
    /// Sequence id of the row with number 0, if rows have one.
    pub(super) sequence: Option<u64>,
    /// The rows that are no messages; `None` if one of them is an error for all.
    pub(super) bad: Option<Vec<BadRow>>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    number: u64,
    payload_end: usize,
    /// End of the key in `text`; `None` without a key.
    key_end: Option<usize>,
    /// End of the topic in `text`, behind the key.
    text_end: usize,
    has_topic: bool,
    properties_end: usize,
    event_time: u64,
    null_value: bool,
}

impl Rows {
    /// Takes the payloads of the rows that will be pushed, each in its turn: none of them is
    /// copied.
    pub(super) fn share(&mut self, values: Buffer) {
        debug_assert!(self.is_empty());
        self.payloads = Payloads::Shared(values);
    }

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
        self.payloads.len()
    }

    /// Names and values of the properties of all rows.
    pub fn properties(&self) -> &[(String, String)] {
        &self.properties
    }

    /// Whether a row that cannot be a message is left out, instead of being an error for all.
    pub fn leaves_out(&self) -> bool {
        self.bad.is_some()
    }

    /// The rows that were left out.
    pub fn take_bad(&mut self) -> Vec<BadRow> {
        self.bad.as_mut().map_or_else(Vec::new, std::mem::take)
    }

    /// Numbers of the rows.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.rows.iter().map(|row| row.number)
    }

    /// No rows, for those that replace these.
    pub fn replacement(&self) -> Self {
        Self {
            key_is_base64: self.key_is_base64,
            bad: self.bad.as_ref().map(|_| Vec::new()),
            ..Self::default()
        }
    }

    /// Adds a payload with its key and its topic.
    pub fn push(&mut self, payload: &[u8], key: Option<&str>, topic: Option<&str>) {
        let number = self.rows.len() as u64;
        self.push_row(NewRow { number, payload, key, topic, ..NewRow::default() });
    }

    /// Adds a row.
    pub fn push_row(&mut self, new: NewRow<'_>) {
        let payload = new.payload;
        let payload_end = match &mut self.payloads {
            Payloads::Copied(bytes) => {
                bytes.extend_from_slice(payload);
                bytes.len()
            }
            Payloads::Shared(values) => {
                let start = self.rows.last().map_or(0, |row| row.payload_end);
                debug_assert_eq!(values.get(start..start + payload.len()), Some(payload));
                start + payload.len()
            }
        };
        self.text.push_str(new.key.unwrap_or_default());
        let key_end = new.key.map(|_| self.text.len());
        self.text.push_str(new.topic.unwrap_or_default());
        self.properties.extend_from_slice(new.properties);
        if let Some(rare) = new.rare {
            self.rare.push(rare);
        }
        self.rows.push(Row {
            number: new.number,
            payload_end,
            key_end,
            text_end: self.text.len(),
            has_topic: new.topic.is_some(),
            properties_end: self.properties.len(),
            event_time: new.event_time,
            null_value: new.null_value,
        });
    }

    /// Adds rows of the same columns.
    pub(super) fn append(&mut self, mut other: Self) {
        if self.is_empty() {
            other.bad = self.bad.take();
            *self = other;
            return;
        }
        let (bytes, text, properties) = (self.payloads.len(), self.text.len(), self.properties.len());
        self.payloads.copied().extend_from_slice(&other.payloads);
        self.text.push_str(&other.text);
        self.properties.append(&mut other.properties);
        self.rare.append(&mut other.rare);
        self.rows.extend(other.rows.iter().map(|row| Row {
            payload_end: bytes + row.payload_end,
            key_end: row.key_end.map(|end| text + end),
            text_end: text + row.text_end,
            properties_end: properties + row.properties_end,
            ..*row
        }));
    }

    /// The rows of each topic, in the order in which the topics are met first.
    pub fn by_topic(self) -> Vec<(String, Self)> {
        let mut places: HashMap<String, usize> = HashMap::default();
        let mut topics: Vec<String> = Vec::new();
        let parts = self.spread(|_, topic| {
            places.get(topic).copied().unwrap_or_else(|| {
                places.insert(topic.to_owned(), topics.len());
                topics.push(topic.to_owned());
                topics.len() - 1
            })
        });
        topics.into_iter().zip(parts).collect()
    }

    /// The first row, and the others, without topics of their own.
    pub fn split_first(self) -> (Self, Self) {
        let mut parts = self.spread(|row, _| row.min(1)).into_iter();
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
    }

    /// The rows in several parts. `place` returns the part of a row, by its index and its topic.
    fn spread(mut self, mut place: impl FnMut(usize, &str) -> usize) -> Vec<Self> {
        let mut parts: Vec<Self> = Vec::new();
        let mut rare = std::mem::take(&mut self.rare).into_iter();
        let (mut payload_at, mut text_at, mut properties_at) = (0, 0, 0);
        for (index, row) in self.rows.iter().enumerate() {
            let place = place(index, &self.text[row.key_end.unwrap_or(text_at)..row.text_end]);
            while parts.len() <= place {
                let (key_is_base64, sequence) = (self.key_is_base64, self.sequence);
                let bad = self.bad.as_ref().map(|_| Vec::new());
                parts.push(Self { key_is_base64, sequence, bad, ..Self::default() });
            }
            parts[place].push_row(NewRow {
                number: row.number,
                payload: &self.payloads[payload_at..row.payload_end],
                key: row.key_end.map(|end| &self.text[text_at..end]),
                topic: None,
                event_time: row.event_time,
                null_value: row.null_value,
                properties: &self.properties[properties_at..row.properties_end],
                rare: rare.next(),
            });
            (payload_at, text_at, properties_at) = (row.payload_end, row.text_end, row.properties_end);
        }
        parts
    }
}

/// A place in [`Rows`], at the next row to push.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    next: usize,
    payload_at: usize,
    text_at: usize,
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
            let rare = rows.rare.get(at.next).unwrap_or(Rare::NONE);
            let found = RowRef {
                payload: &rows.payloads[at.payload_at..row.payload_end],
                key: row.key_end.map(|end| &rows.text[at.text_at..end]),
                key_is_base64: rows.key_is_base64 && row.key_end.is_some(),
                topic: row.has_topic.then(|| &rows.text[row.key_end.unwrap_or(at.text_at)..row.text_end]),
                properties: &properties[at.properties_at..row.properties_end],
                event_time: row.event_time,
                null_value: row.null_value,
                sequence_id: rare.sequence_id.or_else(|| rows.sequence.map(|first| first + row.number)),
                rare,
            };
            at.advance(rows);
            Some(found)
        })
    }

    /// Number of the next row, and the bytes of its payload.
    pub fn next_row(&self, rows: &Rows) -> Option<(u64, usize)> {
        rows.rows.get(self.next).map(|row| (row.number, row.payload_end - self.payload_at))
    }

    /// Moves behind the next row.
    pub fn advance(&mut self, rows: &Rows) {
        if let Some(row) = rows.rows.get(self.next) {
            self.next += 1;
            self.payload_at = row.payload_end;
            self.text_at = row.text_end;
            self.properties_at = row.properties_end;
        }
    }

    /// Number of rows from the next one on.
    pub fn left(&self, rows: &Rows) -> usize {
        rows.rows.len() - self.next
    }
}
