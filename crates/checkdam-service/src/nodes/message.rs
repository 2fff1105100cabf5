//! Status messages between nodes, as JSON.

use serde::{Deserialize, Serialize};

use super::publish_interval::{MESSAGE_MAX, PublishInterval};
use crate::heavy_hitters::{HitterCount, RankedSubjects, RuleSubject};
use crate::telemetry::{TopOf, TopSubjects, TopWindow};

/// The subjects of a list, if that fits.
const SUBJECTS_MAX: usize = 100;
/// The longest accepted text, in bytes.
const TEXT_MAX: usize = 1_024;
/// No counter of ours gets there.
const COUNT_MAX: u64 = 1 << 53;

/// What a node says of itself: see [`NodeView`](super::NodeView).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct NodeSummary {
    pub(super) node: String,
    pub(super) version: String,
    pub(super) uptime_s: u64,
    pub(super) store: String,
    pub(super) rules_version: u64,
    pub(super) requests_per_s: f64,
    pub(super) limited_per_s: f64,
    pub(super) ready: bool,
}

/// A node's status and its top subjects.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct NodeMessage {
    /// Which process it is: names may be the same.
    pub(super) id: u64,
    /// The same for nodes that name buckets alike.
    pub(super) deployment: String,
    #[serde(flatten)]
    pub(super) summary: NodeSummary,
    /// It is published at least every so many seconds.
    pub(super) every_s: u64,
    /// None if subjects are not published.
    pub(super) top: Option<TopLists>,
}

/// The top subjects.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TopLists {
    limited_minute: TopList,
    limited_hour: TopList,
    allowed_minute: TopList,
    allowed_hour: TopList,
}

/// One list, most often first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TopList {
    total: u64,
    missing_at_most: u64,
    /// Rule, subject, count and by how much that may be too high.
    subjects: Vec<(String, String, u64, u64)>,
}

impl NodeMessage {
    /// The message in at most [`PublishInterval::bytes_max`] bytes: lists are cut until it fits.
    pub(super) fn encode(mut self, pace: PublishInterval) -> Vec<u8> {
        self.every_s = pace.every_s();
        let mut subjects_max = SUBJECTS_MAX;
        loop {
            self.lists().for_each(|list| list.truncate(subjects_max));
            let encoded = serde_json::to_vec(&self).unwrap_or_default();
            if encoded.len() <= pace.bytes_max || subjects_max == 0 {
                return encoded;
            }
            subjects_max /= 2;
        }
    }

    /// Decodes a message, if it is plausible.
    pub(super) fn decode(word: &[u8]) -> Option<Self> {
        if word.len() > MESSAGE_MAX {
            return None;
        }
        let mut message: Self = serde_json::from_slice(word).ok()?;
        let NodeSummary { node, version, store, requests_per_s, limited_per_s, .. } = &message.summary;
        let texts = [node, version, store, &message.deployment];
        let rates = [requests_per_s, limited_per_s];
        let is_sound = texts.iter().all(|text| text.len() <= TEXT_MAX)
            && rates.iter().all(|rate| rate.is_finite() && **rate >= 0.0)
            && message.lists().all(|list| list.is_plausible());
        is_sound.then_some(message)
    }

    fn lists(&mut self) -> impl Iterator<Item = &mut TopList> {
        self.top.iter_mut().flat_map(TopLists::lists_mut)
    }
}

impl TopLists {
    pub(super) fn from_top_subjects(top: &TopSubjects) -> Self {
        let list = |kind, span| TopList::from_ranked(top.ranked(kind, span));
        Self {
            limited_minute: list(TopOf::Limited, TopWindow::Minute),
            limited_hour: list(TopOf::Limited, TopWindow::Hour),
            allowed_minute: list(TopOf::Allowed, TopWindow::Minute),
            allowed_hour: list(TopOf::Allowed, TopWindow::Hour),
        }
    }

    pub(super) const fn list(&self, kind: TopOf, span: TopWindow) -> &TopList {
        match (kind, span) {
            (TopOf::Limited, TopWindow::Minute) => &self.limited_minute,
            (TopOf::Limited, TopWindow::Hour) => &self.limited_hour,
            (TopOf::Allowed, TopWindow::Minute) => &self.allowed_minute,
            (TopOf::Allowed, TopWindow::Hour) => &self.allowed_hour,
        }
    }

    fn lists_mut(&mut self) -> [&mut TopList; 4] {
        [&mut self.limited_minute, &mut self.limited_hour, &mut self.allowed_minute, &mut self.allowed_hour]
    }
}

impl TopList {
    fn from_ranked(ranked: RankedSubjects) -> Self {
        let RankedSubjects { names, missing_at_most, total } = ranked;
        let subjects = names.into_iter().map(|(name, count)| (name.rule, name.subject, count.count, count.too_high_by));
        Self { total, missing_at_most, subjects: subjects.collect() }
    }

    pub(super) fn ranked(&self) -> RankedSubjects {
        let names = self.subjects.iter().cloned().map(|(rule, subject, count, too_high_by)| {
            (RuleSubject { rule, subject }, HitterCount { count, too_high_by })
        });
        RankedSubjects { names: names.collect(), missing_at_most: self.missing_at_most, total: self.total }
    }

    fn truncate(&mut self, max: usize) {
        if let Some((_, _, count, _)) = self.subjects.get(max) {
            self.missing_at_most = self.missing_at_most.max(*count);
        }
        self.subjects.truncate(max);
    }

    fn is_plausible(&self) -> bool {
        let mut names: Vec<_> = self.subjects.iter().map(|(rule, subject, ..)| (rule, subject)).collect();
        names.sort_unstable();
        names.dedup();
        names.len() == self.subjects.len()
            && self.subjects.len() <= SUBJECTS_MAX
            && [self.total, self.missing_at_most].iter().all(|count| *count <= COUNT_MAX)
            && self.subjects.iter().all(|(rule, subject, count, too_high_by)| {
                rule.len() <= TEXT_MAX && subject.len() <= TEXT_MAX && too_high_by <= count && *count <= COUNT_MAX
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl NodeSummary {
        pub(in crate::nodes) fn example(node: &str) -> Self {
            Self {
                node: node.to_owned(),
                version: "0.1.0".to_owned(),
                uptime_s: 12,
                store: "redis".to_owned(),
                rules_version: 3,
                requests_per_s: 1.5,
                limited_per_s: 0.5,
                ready: true,
            }
        }
    }

    fn message(subjects: usize, length: usize) -> NodeMessage {
        let list = || TopList {
            total: 1_000_000,
            missing_at_most: 0,
            subjects: (0..subjects)
                .map(|number| ("rule".to_owned(), format!("{number:0length$}"), (subjects - number) as u64, 0))
                .collect(),
        };
        let top =
            TopLists { limited_minute: list(), limited_hour: list(), allowed_minute: list(), allowed_hour: list() };
        let summary = NodeSummary::example("one:8080");
        NodeMessage { id: 7, deployment: "d".to_owned(), summary, every_s: 2, top: Some(top) }
    }

    fn few() -> PublishInterval {
        PublishInterval::for_nodes(1)
    }

    #[test]
    fn among_many_only_the_first_are_told() {
        let pace = PublishInterval::for_nodes(150);
        let encoded = message(100, 30).encode(pace);
        assert!(encoded.len() <= pace.bytes_max, "{}", encoded.len());
        let decoded = NodeMessage::decode(&encoded).unwrap();
        assert_eq!(decoded.every_s, 30);
        assert!(!decoded.top.unwrap().limited_hour.subjects.is_empty());
    }

    #[test]
    fn messages_come_back_whole_or_cut_to_what_fits() {
        let whole = NodeMessage::decode(&message(100, 10).encode(few())).unwrap();
        let hour = whole.top.unwrap().limited_hour;
        assert_eq!((hour.subjects.len(), hour.missing_at_most), (100, 0));
        assert_eq!(whole.summary, NodeSummary::example("one:8080"));
        let encoded = message(1_000, 500).encode(few());
        assert!(encoded.len() <= MESSAGE_MAX);
        let cut = NodeMessage::decode(&encoded).unwrap().top.unwrap().limited_hour;
        assert!(cut.subjects.len() >= 10, "{}", cut.subjects.len());
        assert_eq!(cut.missing_at_most, (1_000 - cut.subjects.len()) as u64, "what is cut off raises the bound");
    }

    #[test]
    fn nonsense_is_not_believed() {
        let sound = String::from_utf8(message(2, 1).encode(few())).unwrap();
        assert!(NodeMessage::decode(sound.as_bytes()).is_some(), "{sound}");
        let long = "x".repeat(2_000);
        let table = [
            ("\"one:8080\"", format!("\"{long}\"")),
            ("\"requests_per_s\":1.5", "\"requests_per_s\":-1.0".to_owned()),
            ("\"requests_per_s\":1.5", "\"requests_per_s\":1e999".to_owned()),
            ("\"rule\",\"0\"", "\"rule\",\"1\"".to_owned()),
            ("\"rule\",\"0\",2,0", "\"rule\",\"0\",2,3".to_owned()),
            ("\"rule\",\"0\",2,0", "\"rule\",\"0\",18446744073709551615,0".to_owned()),
            ("\"rule\",\"0\",2,0", format!("\"{long}\",\"0\",2,0")),
            ("\"id\":7,", String::new()),
            ("{", "[".to_owned()),
        ];
        for (from, to) in table {
            assert!(sound.contains(from), "{from} in {sound}");
            assert!(NodeMessage::decode(sound.replace(from, &to).as_bytes()).is_none(), "{from} → {to}");
        }
        assert!(NodeMessage::decode(&vec![b' '; MESSAGE_MAX + 1]).is_none());
    }
}
