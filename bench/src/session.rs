//! A run of the benchmarks: how long its rounds are, what it found so far, and
//! what people see of it meanwhile.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::figures::{Bound, Figures, Verdict, shown};

/// Rounds, seconds of a long one, seconds of a short one with `--quick`.
const QUICK: (usize, f64, f64) = (3, 0.6, 0.08);

/// How long everything takes.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Rounds that count.
    pub rounds: usize,
    /// A round of servers, Redis and network.
    pub long: Duration,
    /// A round within this process.
    pub short: Duration,
}

impl Pace {
    /// The usual lengths; `BENCH_SECONDS` and `BENCH_ROUNDS` overrule them.
    ///
    /// # Errors
    /// If one of them is no number in range.
    pub fn new(is_quick: bool) -> Result<Self, String> {
        let (rounds, long, short) = if is_quick { QUICK } else { (9, 2.0, 0.3) };
        let seconds = from_environment("BENCH_SECONDS", 0.01, 60.0)?;
        let rounds = from_environment("BENCH_ROUNDS", 1.0, 99.0)?.map_or(rounds, |rounds| rounds as usize);
        let long = seconds.unwrap_or(long);
        let short = seconds.map_or(short, |seconds| (seconds / 6.0).max(0.005));
        Ok(Self { rounds, long: Duration::from_secs_f64(long), short: Duration::from_secs_f64(short) })
    }
}

fn from_environment(name: &str, least: f64, most: f64) -> Result<Option<f64>, String> {
    let Ok(text) = std::env::var(name) else { return Ok(None) };
    match text.parse::<f64>() {
        Ok(value) if (least..=most).contains(&value) => Ok(Some(value)),
        _ => Err(format!("{name} is {text:?}: give a number from {least} to {most}")),
    }
}

/// What is under way, and what was found.
#[derive(Debug)]
pub struct Session {
    pace: Pace,
    started: Instant,
    suite: String,
    /// When all will be done, by what has been done so far.
    due: Duration,
    figures: Vec<(String, Figures)>,
    verdicts: Vec<Verdict>,
    shown_title: String,
}

impl Session {
    /// Nothing found yet.
    #[must_use]
    pub fn new(pace: Pace) -> Self {
        Self {
            pace,
            started: Instant::now(),
            suite: String::new(),
            due: Duration::ZERO,
            figures: Vec::new(),
            verdicts: Vec::new(),
            shown_title: String::new(),
        }
    }

    /// How long everything takes.
    #[must_use]
    pub const fn pace(&self) -> Pace {
        self.pace
    }

    /// How long it has taken so far.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Every table so far, with its suite.
    #[must_use]
    pub fn figures(&self) -> &[(String, Figures)] {
        &self.figures
    }

    /// Every promise looked at so far.
    #[must_use]
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// Another suite begins. Those before it take so many seconds with `--quick`,
    /// it and those after it so many.
    pub fn begin(&mut self, suite: &str, place: (usize, usize), (before, rest): (f64, f64)) {
        let elapsed = self.started.elapsed();
        // As slow as so far; at first as slow as the rounds are longer than quick ones.
        let rounds_s = self.pace.rounds as f64 * self.pace.long.as_secs_f64();
        let scale = if before > 0.0 { elapsed.as_secs_f64() / before } else { rounds_s / (QUICK.0 as f64 * QUICK.1) };
        self.due = elapsed + Duration::from_secs_f64(scale * rest);
        self.suite = format!("[{}/{}] {suite}", place.0, place.1);
        self.say(&format!("{}, {}", self.suite, self.left()));
    }

    /// How long the rest takes.
    fn left(&self) -> String {
        let left = self.due.saturating_sub(self.started.elapsed()).as_secs();
        format!("about {}:{:02} left", left / 60, left % 60)
    }

    /// A line for people.
    #[allow(clippy::print_stderr, reason = "talk, not data")]
    pub fn say(&self, text: &str) {
        let clear = if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
        eprintln!("{clear}{:>5.0}s {text}", self.started.elapsed().as_secs_f64());
    }

    /// Who is being measured: a line that is written over on a terminal, one a
    /// contest elsewhere.
    pub fn progress(&mut self, title: &str, round: usize, rounds: usize, contender: &str) {
        if !std::io::stderr().is_terminal() {
            if self.shown_title != title {
                title.clone_into(&mut self.shown_title);
                self.say(&format!("{}: {title}, {rounds} rounds", self.suite));
            }
            return;
        }
        let left = self.left();
        let round = if round == 0 { "warming up".to_owned() } else { format!("round {round} of {rounds}") };
        let seconds = self.started.elapsed().as_secs();
        let mut terminal = std::io::stderr();
        let _ = write!(terminal, "\r\x1b[K{seconds:>5}s {}: {title}, {round}: {contender}, {left}", self.suite);
        let _ = terminal.flush();
    }

    /// Keeps a table.
    pub fn keep(&mut self, figures: Figures) {
        self.figures.push((self.suite.clone(), figures));
    }

    /// Keeps a promise's ratio of two rows of a table: ours over theirs where
    /// more is better, theirs over ours where less is.
    pub fn judge(&mut self, judged: Judged<'_>) {
        let Judged { figures, metric, what, ours, against, theirs, over, bound, fault } = judged;
        let ratio = match over {
            Over::Ours => figures.ratio(ours, theirs, metric),
            Over::Theirs => figures.ratio(theirs, ours, metric),
        };
        let unit = figures.metrics[metric];
        let number = |name: &str| format!("{} {unit}", shown(figures.median(name, metric)));
        let (what, against) = (what.to_owned(), against.to_owned());
        self.verdicts.push(Verdict { what, against, ours: number(ours), theirs: number(theirs), ratio, bound, fault });
    }
}

/// Which of two numbers stands over the other.
#[derive(Debug, Clone, Copy)]
pub enum Over {
    /// Ours: more is better, or ours may be more by so much.
    Ours,
    /// Theirs: less is better.
    Theirs,
}

/// Two rows of a table and the ratio that is promised of them.
#[derive(Debug)]
pub struct Judged<'a> {
    /// The table.
    pub figures: &'a Figures,
    /// Which metric of it.
    pub metric: usize,
    /// What of ours, in the words of the promise.
    pub what: &'a str,
    /// Our row.
    pub ours: &'a str,
    /// Beside what, in the words of the promise.
    pub against: &'a str,
    /// Their row.
    pub theirs: &'a str,
    /// Which stands over which.
    pub over: Over,
    /// What is promised.
    pub bound: Bound,
    /// What else must hold, if it does not.
    pub fault: Option<String>,
}
