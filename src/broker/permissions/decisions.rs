//! Decisions about the topics that a connection used lately.

use forebay_base::random::HashMap;

/// Limits on the topics that are remembered and on the bytes of their names.
const TOPICS: usize = 1024;
const BYTES: usize = 64 << 10;

/// Decisions on topics, for one client and one kind of access.
#[derive(Debug, Default)]
pub struct Decisions {
    known: HashMap<Box<str>, bool>,
    bytes: usize,
}

impl Decisions {
    /// The decision on a topic, made by `decide` if it is not known. It goes by the rules that were
    /// valid at the last [`Self::forget`].
    pub fn recall(&mut self, topic: &str, decide: impl FnOnce() -> bool) -> bool {
        if let Some(decision) = self.known.get(topic) {
            return *decision;
        }
        let decision = decide();
        if self.known.len() >= TOPICS || self.bytes >= BYTES {
            self.forget();
        }
        self.bytes += topic.len();
        self.known.insert(topic.into(), decision);
        decision
    }

    /// Forgets all decisions: the rules have changed, or the client.
    pub fn forget(&mut self) {
        self.known.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_decided_once_until_the_rules_change() {
        let mut decisions = Decisions::default();
        let mut asked = 0;
        let mut recall = |decisions: &mut Decisions, answer| {
            decisions.recall("a", || {
                asked += 1;
                answer
            })
        };
        assert!(recall(&mut decisions, true) && recall(&mut decisions, false));
        decisions.forget();
        assert!(!recall(&mut decisions, false));
        assert_eq!(asked, 2);
    }

    #[test]
    fn a_client_of_many_topics_does_not_fill_the_memory() {
        let mut decisions = Decisions::default();
        for number in 0..10 * TOPICS {
            decisions.recall(&format!("{number}/{}", "x".repeat(100)), || true);
            assert!(decisions.known.len() <= TOPICS && decisions.bytes <= BYTES + 200);
        }
    }
}
