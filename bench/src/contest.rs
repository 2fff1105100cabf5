//! Contenders by turns: each does the same for a while, round after round, so
//! that whatever else the machine does hits all alike.

use std::time::Duration;

use crate::figures::{Figures, Row};
use crate::session::Session;

/// What a contender does in a round of that length: one number a metric.
type Round<'a> = Box<dyn FnMut(Duration) -> Vec<f64> + 'a>;

/// Contenders, and what is measured of them.
pub struct Contest<'a> {
    title: String,
    metrics: &'static [&'static str],
    contenders: Vec<(String, Round<'a>)>,
    notes: Vec<String>,
    is_curve: bool,
}

impl<'a> Contest<'a> {
    /// A contest without contenders.
    #[must_use]
    pub fn new(title: impl Into<String>, metrics: &'static [&'static str]) -> Self {
        Self { title: title.into(), metrics, contenders: Vec::new(), notes: Vec::new(), is_curve: false }
    }

    /// As [`new`](Self::new), of one thing that grows.
    #[must_use]
    pub fn curve(title: impl Into<String>, metrics: &'static [&'static str]) -> Self {
        Self { is_curve: true, ..Self::new(title, metrics) }
    }

    /// Another contender.
    pub fn add(&mut self, name: impl Into<String>, round: impl FnMut(Duration) -> Vec<f64> + 'a) {
        self.contenders.push((name.into(), Box::new(round)));
    }

    /// Something that readers must know.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Runs all rounds, after one that warms up and does not count.
    pub fn run(mut self, session: &mut Session, length: Duration) -> Figures {
        let rounds = session.pace().rounds;
        let mut rows: Vec<Row> = (self.contenders.iter())
            .map(|(name, _)| Row { name: name.clone(), values: vec![Vec::new(); self.metrics.len()] })
            .collect();
        for round in 0..=rounds {
            // The order turns, so that nobody is always the one after the same other.
            for turn in 0..rows.len() {
                let place = (turn + round) % rows.len();
                let (name, act) = &mut self.contenders[place];
                session.progress(&self.title, round, rounds, name);
                let numbers = act(if round == 0 { length / 4 } else { length });
                assert_eq!(numbers.len(), self.metrics.len(), "{}: {name} answers another question", self.title);
                if round > 0 {
                    for (values, number) in rows[place].values.iter_mut().zip(numbers) {
                        values.push(number);
                    }
                }
            }
        }
        Figures { title: self.title, metrics: self.metrics, rows, notes: self.notes, is_curve: self.is_curve }
    }
}
