//! What was measured: every round's number, and what the rounds have in common.

/// The middle, the least and the most of some rounds.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    /// The one in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// Of these rounds; of none it is not a number.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        match sorted.as_slice() {
            [] => Self { median: f64::NAN, min: f64::NAN, max: f64::NAN },
            [min, .., max] => Self { median: middle(&sorted), min: *min, max: *max },
            [only] => Self { median: *only, min: *only, max: *only },
        }
    }
}

fn middle(sorted: &[f64]) -> f64 {
    let (left, right) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    f64::midpoint(left, right)
}

/// One contender: its name, and for each metric a number from every round.
#[derive(Debug, Clone)]
pub struct Row {
    /// Who it is.
    pub name: String,
    /// By metric, then by round.
    pub values: Vec<Vec<f64>>,
}

/// A table of contenders measured by turns.
#[derive(Debug, Clone)]
pub struct Figures {
    /// What they did.
    pub title: String,
    /// What was measured of each, with its unit.
    pub metrics: &'static [&'static str],
    /// The contenders.
    pub rows: Vec<Row>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// Whether the rows are one thing that grows: the charts draw a line.
    pub is_curve: bool,
}

impl Figures {
    /// The rounds of one contender by one metric.
    ///
    /// # Panics
    /// If there is no such contender: the suites name them.
    #[must_use]
    pub fn values(&self, name: &str, metric: usize) -> &[f64] {
        let row = self.rows.iter().find(|row| row.name == name);
        &row.unwrap_or_else(|| panic!("{}: no contender {name}", self.title)).values[metric]
    }

    /// The middle of one contender by one metric.
    #[must_use]
    pub fn median(&self, name: &str, metric: usize) -> f64 {
        Spread::of(self.values(name, metric)).median
    }

    /// One contender over another, round by round: the rounds of one turn saw
    /// the same machine.
    #[must_use]
    pub fn ratio(&self, over: &str, under: &str, metric: usize) -> Spread {
        let pairs = self.values(over, metric).iter().zip(self.values(under, metric));
        Spread::of(&pairs.map(|(over, under)| over / under).collect::<Vec<_>>())
    }
}

/// What a ratio must be.
#[derive(Debug, Clone, Copy)]
pub enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Bound {
    /// The number.
    #[must_use]
    pub const fn mark(self) -> f64 {
        match self {
            Self::AtLeast(mark) | Self::AtMost(mark) => mark,
        }
    }

    /// Whether a ratio keeps it.
    #[must_use]
    pub fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(mark) => ratio >= mark,
            Self::AtMost(mark) => ratio <= mark,
        }
    }
}

/// A ratio that is promised, and what it was.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// What of ours.
    pub what: String,
    /// Beside what.
    pub against: String,
    /// Ours, with its unit.
    pub ours: String,
    /// Theirs, with its unit.
    pub theirs: String,
    /// How they compare.
    pub ratio: Spread,
    /// What is promised.
    pub bound: Bound,
    /// What else must hold, if it does not.
    pub fault: Option<String>,
}

impl Verdict {
    /// Whether the promise is kept.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.bound.is_met(self.ratio.median) && self.fault.is_none()
    }
}

/// A number as people read it: three digits that count, thousands apart.
#[must_use]
pub fn shown(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let decimals = match value.abs() {
        0.0 => 0,
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    rest.map_or(grouped.clone(), |rest| format!("{grouped}.{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_with_three_digits() {
        let cases = [(0.0, "0"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (1_234_567.0, "1,234,567")];
        for (value, text) in cases {
            assert_eq!(shown(value), text);
        }
        assert_eq!((shown(-123_456.0).as_str(), shown(f64::NAN).as_str()), ("-123,456", "–"));
    }

    #[test]
    fn the_middle_of_an_even_number_of_rounds_is_between_two() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!((spread.median, spread.min, spread.max), (2.5, 1.0, 4.0));
        assert!(Spread::of(&[]).median.is_nan());
    }
}
