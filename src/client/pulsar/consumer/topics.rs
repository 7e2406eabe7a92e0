//! Topics that a consumer is opened for.

use forebay_pulsar::pattern::Pattern;
use forebay_pulsar::topic::TopicName;

/// Topics of a consumer.
#[derive(Clone, Debug)]
pub enum Topics {
    /// These topics.
    Named(Vec<TopicName>),
    /// Those that the pattern matches, now and later.
    Matching(Pattern),
}

impl Topics {
    /// Text that names them.
    pub(super) fn title(&self) -> String {
        match self {
            Self::Named(topics) => topics.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            Self::Matching(pattern) => pattern.text().to_owned(),
        }
    }
}
