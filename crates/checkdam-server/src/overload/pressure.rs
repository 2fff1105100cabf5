//! How many requests must go for the others to be answered in time.

use std::time::Duration;

/// Parts of which a share is counted.
pub(super) const WHOLE: u32 = 1_000;
/// So many late answers in a row are no accident: one pause of the machine,
/// however long, is one late answer.
const LATE_MIN: u32 = 3;
/// What is added to the share while work is late.
const STEP_UP: u32 = 200;
/// What is taken from it while work is in time: slowly, so that the share
/// settles instead of swinging.
const STEP_DOWN: u32 = 50;
/// Somebody always passes: if the machine is slow for another reason than our
/// requests, turning all of them away would help nobody.
const SHARE_MAX: u32 = 900;

/// The share of requests to turn away, which follows how late work begins.
#[derive(Debug)]
pub(super) struct Pressure {
    late_max: Duration,
    late: u32,
    share: u32,
}

impl Pressure {
    pub(super) const fn new(late_max: Duration) -> Self {
        Self { late_max, late: 0, share: 0 }
    }

    /// Work began so late; the share of requests to turn away from now on.
    pub(super) fn note(&mut self, lateness: Duration) -> u32 {
        if lateness > self.late_max {
            self.late += 1;
            if self.late >= LATE_MIN {
                self.share = (self.share + STEP_UP).min(SHARE_MAX);
            }
        } else {
            self.late = 0;
            // Between a half and the whole it is held.
            if lateness <= self.late_max / 2 {
                self.share = self.share.saturating_sub(STEP_DOWN);
            }
        }
        self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn one_long_pause_turns_nobody_away() {
        let mut pressure = Pressure::new(ms(100));
        for lateness in [5_000, 1, 300, 120, 1] {
            assert_eq!(pressure.note(ms(lateness)), 0, "{lateness} ms");
        }
    }

    #[test]
    fn the_share_rises_while_work_is_late_and_falls_to_nothing_when_it_is_not() {
        let mut pressure = Pressure::new(ms(100));
        let rising: Vec<u32> = (0..8).map(|_| pressure.note(ms(150))).collect();
        assert_eq!(rising, [0, 0, 200, 400, 600, 800, 900, 900]);
        assert_eq!([pressure.note(ms(80)), pressure.note(ms(51))], [900, 900], "held");
        let falling: Vec<u32> = (0..19).map(|_| pressure.note(ms(50))).collect();
        assert_eq!((falling[0], falling[1], falling[17], falling[18]), (850, 800, 0, 0));
        assert_eq!(pressure.note(ms(150)), 0, "it takes three again");
    }
}
