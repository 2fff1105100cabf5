//! Suggests limits from observed traffic: percentiles of each subject's peak use,
//! without outliers, which may be the abuse that limits are meant for.
//!
//! An outlier is beyond the upper outer fence of Tukey's box plot, in the logarithm
//! of the peak: above the third quartile by more than three times the interquartile
//! range, with that range taken as at least a factor of 2. So up to a quarter of the
//! subjects may be attackers without any effect.
//!
//! Each subject takes one entry of 64 bytes; if there are too many, whole subjects
//! are sampled.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use checkdam::{KeyPattern, Request};
use serde::Serialize;

/// The most subjects that are kept: 100 MB.
const SUBJECTS_MAX: usize = 1_000_000;
/// The windows that peaks are counted in: their name, and seconds.
const WINDOWS: [(&str, u64); 3] = [("s", 1), ("m", 60), ("h", 3_600)];
/// Per mille of the subjects that the percentiles are of.
const PERCENTILES: [(&str, usize); 4] = [("p50", 500), ("p90", 900), ("p99", 990), ("p99.9", 999)];
/// Fewer subjects do not permit to detect outliers.
pub const SUBJECTS_MIN: u64 = 20;
/// How many times the distance of the quartiles an outlier is above the third.
const FENCE: f64 = 3.0;
/// How much above the last percentile a limit is suggested, in percent.
const HEADROOM: u64 = 125;

/// The peaks of every subject of a key.
#[derive(Debug)]
pub(super) struct Peaks {
    key: KeyPattern,
    mask: u64,
    hasher: foldhash::fast::RandomState,
    subjects: HashMap<u64, [Peak; WINDOWS.len()], foldhash::fast::RandomState>,
    first_s: u64,
    last_s: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Peak {
    window: u32,
    now: u32,
    most: u32,
}

/// What is suggested for a key.
#[derive(Debug, Clone, Serialize)]
pub struct Suggestion {
    pub key: String,
    /// How many subjects were sampled.
    pub subjects: u64,
    /// One subject in this many was sampled.
    pub sampled_one_in: u64,
    pub peaks: Vec<WindowPeaks>,
    /// Limits above nearly all of them, without outliers.
    pub limits: Vec<String>,
    /// Subjects that were excluded because they use far more than the others.
    pub outliers: u64,
    /// Subjects that would have been limited.
    pub exceeding: u64,
}

/// The peak use of a subject within a window.
#[derive(Debug, Clone, Serialize)]
pub struct WindowPeaks {
    /// `s`, `m` or `h`.
    pub per: &'static str,
    pub p50: u32,
    pub p90: u32,
    pub p99: u32,
    #[serde(rename = "p99.9")]
    pub p999: u32,
    pub max: u32,
    /// The 99.9th percentile without the outliers.
    #[serde(skip)]
    usual: u32,
    /// Peaks above this are outliers.
    #[serde(skip)]
    fence: f64,
}

impl Peaks {
    pub(super) fn new(key: KeyPattern) -> Self {
        let (hasher, subjects) = Default::default();
        Self { key, mask: 0, hasher, subjects, first_s: u64::MAX, last_s: 0 }
    }

    /// A request at that time; it may have no subject.
    pub(super) fn note(&mut self, unix_s: u64, request: &Request<'_>) {
        let mut hasher = self.hasher.build_hasher();
        for name in self.key.attributes() {
            let Some(value) = request.get(name) else { return };
            hasher.write(value.as_bytes());
            hasher.write_u8(0xff);
        }
        (self.first_s, self.last_s) = (self.first_s.min(unix_s), self.last_s.max(unix_s));
        let hash = hasher.finish();
        if hash & self.mask != 0 {
            return;
        }
        let cost = u32::try_from(request.cost()).unwrap_or(u32::MAX);
        let peaks = self.subjects.entry(hash).or_default();
        for (peak, (_, length_s)) in peaks.iter_mut().zip(WINDOWS) {
            let window = (unix_s / length_s) as u32;
            if peak.window != window {
                (peak.window, peak.now) = (window, 0);
            }
            peak.now = peak.now.saturating_add(cost);
            peak.most = peak.most.max(peak.now);
        }
        if self.subjects.len() > SUBJECTS_MAX {
            self.mask = self.mask << 1 | 1;
            let mask = self.mask;
            self.subjects.retain(|hash, _| hash & mask == 0);
        }
    }

    pub(super) fn suggestion(&self) -> Suggestion {
        let span_s = self.last_s.saturating_sub(self.first_s);
        // A window as long as the log says little.
        let windows = || (0..WINDOWS.len()).filter(|window| *window == 0 || WINDOWS[*window].1 * 2 <= span_s);
        let peaks: Vec<_> = windows().map(|window| self.peaks(window)).collect();
        let limit = |peaks: &WindowPeaks| round((u64::from(peaks.usual) * HEADROOM).div_ceil(100));
        let limits: Vec<u64> = peaks.iter().map(limit).collect();
        let exceeds = |subject: &&[Peak; WINDOWS.len()]| {
            windows().zip(&limits).any(|(window, limit)| u64::from(subject[window].most) > *limit)
        };
        let is_outlier = |subject: &&[Peak; WINDOWS.len()]| {
            windows().zip(&peaks).any(|(window, peaks)| f64::from(subject[window].most) > peaks.fence)
        };
        let written = windows().zip(&limits).map(|(window, limit)| format!("{limit}/{}", WINDOWS[window].0));
        Suggestion {
            key: self.key.text().to_owned(),
            subjects: self.subjects.len() as u64,
            sampled_one_in: self.mask + 1,
            limits: written.collect(),
            outliers: self.subjects.values().filter(is_outlier).count() as u64,
            exceeding: self.subjects.values().filter(exceeds).count() as u64,
            peaks,
        }
    }

    fn peaks(&self, window: usize) -> WindowPeaks {
        let mut most: Vec<u32> = self.subjects.values().map(|subject| subject[window].most).collect();
        most.sort_unstable();
        let [p50, p90, p99, p999] = PERCENTILES.map(|(_, mille)| percentile(&most, mille));
        let [first, third] = [250, 750].map(|mille| f64::from(percentile(&most, mille).max(1)).log2());
        let fence = (third + FENCE * (third - first).max(1.0)).exp2();
        let usual = &most[..most.partition_point(|peak| f64::from(*peak) <= fence)];
        let (usual, max) = (percentile(usual, 999), most.last().copied().unwrap_or(0));
        WindowPeaks { per: WINDOWS[window].0, p50, p90, p99, p999, max, usual, fence }
    }
}

/// The smallest value that this many per mille do not exceed.
fn percentile(sorted: &[u32], mille: usize) -> u32 {
    let rank = (sorted.len() * mille).div_ceil(1_000).max(1) - 1;
    sorted.get(rank).copied().unwrap_or(0)
}

impl Suggestion {
    /// A rule, ready to be used.
    pub fn yaml(&self) -> String {
        let name: String = self.key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let mut parts: Vec<&str> = name.split('-').filter(|part| !part.is_empty()).collect();
        parts.dedup();
        let limits: Vec<String> = self.limits.iter().map(|limit| format!("{limit:?}")).collect();
        format!(
            "  - name: suggested-{}\n    key: {:?}\n    limits: [{}]\n    mode: shadow\n",
            parts.join("-"),
            self.key,
            limits.join(", ")
        )
    }
}

/// Rounded up to two digits, which people remember.
fn round(number: u64) -> u64 {
    let unit = 10_u64.pow(number.max(1).ilog10().saturating_sub(1));
    (number.div_ceil(unit) * unit).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Subjects with these peaks in one minute.
    fn suggested(most: impl Iterator<Item = u64>) -> Suggestion {
        let mut peaks = Peaks::new("ip:{ip}".parse().unwrap());
        for (number, times) in most.enumerate() {
            let request = Request::new().with("ip", number.to_string()).unwrap().costing(times);
            peaks.note(600, &request);
            peaks.note(800, &request.costing(1));
        }
        peaks.suggestion()
    }

    #[test]
    fn attackers_in_the_log_move_nothing() {
        let honest = || (0..80).map(|number| 5 + number % 20);
        let alone = suggested(honest());
        assert_eq!((alone.limits.join(" "), alone.outliers), ("30/s 30/m".to_owned(), 0));
        for attackers in [1, 5, 20] {
            let together = suggested(honest().chain((0..attackers).map(|_| 50_000)));
            assert_eq!((together.limits, together.outliers), (alone.limits.clone(), attackers), "{attackers}");
            assert_eq!((together.exceeding, together.peaks[0].max), (attackers, 50_000));
        }
        // Subjects that use several times as much as most are not attackers.
        let uneven = suggested((0..100).map(|number| if number % 10 == 0 { 40 } else { 10 }));
        assert_eq!((uneven.limits[0].as_str(), uneven.outliers), ("50/s", 0));
    }

    #[test]
    fn limits_lie_above_what_nearly_all_ask_for() {
        let mut peaks = Peaks::new("user:{user}".parse().unwrap());
        // Users 1 to 1,000 ask their number of times within the first minutes, one a second.
        for second in 0..1_000_u64 {
            for user in [10_u64, 100, 1_000] {
                if second < user {
                    let request = Request::new().with("user", user.to_string()).unwrap();
                    peaks.note(600 + second, &request);
                }
            }
        }
        let suggestion = peaks.suggestion();
        assert_eq!((suggestion.subjects, suggestion.sampled_one_in), (3, 1));
        let shown: Vec<_> = suggestion.peaks.iter().map(|peak| (peak.per, peak.p50, peak.max)).collect();
        assert_eq!(shown, [("s", 1, 1), ("m", 60, 60)]);
        assert_eq!((suggestion.limits.join(" "), suggestion.exceeding), ("2/s 75/m".to_owned(), 0));
        assert!(suggestion.yaml().contains("name: suggested-user\n"), "{}", suggestion.yaml());
        assert_eq!([0, 9, 11, 101, 1_234].map(round), [1, 9, 11, 110, 1_300]);
    }
}
