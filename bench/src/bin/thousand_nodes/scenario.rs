//! The load over time: how many requests each subject sends, and when.

/// A demand on one limit.
pub struct Scenario {
    pub name: &'static str,
    pub quota: &'static str,
    pub lease_us: u64,
    /// Requests a second, of all nodes.
    demand_per_s: f64,
    course: Course,
    /// The weight of the n-th busiest node is n to the power of minus this.
    skew: f64,
}

/// How demand goes on.
enum Course {
    Steady,
    /// So often the busiest nodes become the idlest, and others take their place.
    Moving {
        every_us: u64,
    },
    /// For half of each second there is a tenth of the demand.
    Falling,
}

impl Scenario {
    pub fn all() -> [Self; 5] {
        let with = |name, demand_per_s, skew, course| Self {
            name,
            quota: "1000000/s burst 1000000",
            lease_us: 100_000,
            demand_per_s,
            course,
            skew,
        };
        [
            with("demand 0.8 of the rate", 800_000.0, 1.0, Course::Steady),
            with("demand 2 × the rate", 2_000_000.0, 1.0, Course::Steady),
            with("2 ×, a hot spot that moves every 0.5 s", 2_000_000.0, 1.0, Course::Moving { every_us: 500_000 }),
            with("2 × and 0.2 × by turns", 2_000_000.0, 1.0, Course::Falling),
            with("2 ×, all nodes alike", 2_000_000.0, 0.0, Course::Steady),
        ]
    }

    /// Each node's share of the demand, summed up.
    pub fn shares(&self, nodes: usize) -> Vec<f64> {
        let mut sum = 0.0;
        let mut shares: Vec<f64> = (1..=nodes)
            .map(|rank| {
                sum += (rank as f64).powf(-self.skew);
                sum
            })
            .collect();
        shares.iter_mut().for_each(|share| *share /= sum);
        shares
    }

    /// The demand at that time, in requests a microsecond.
    pub fn demand_per_us(&self, now_us: u64) -> f64 {
        let is_low = matches!(self.course, Course::Falling) && now_us % 1_000_000 >= 500_000;
        self.demand_per_s / 1e6 * if is_low { 0.1 } else { 1.0 }
    }

    /// Which node has that rank at that time.
    pub fn node(&self, rank: usize, nodes: usize, now_us: u64) -> usize {
        match self.course {
            Course::Moving { every_us } => (rank + (now_us / every_us) as usize * nodes / 3) % nodes,
            _ => rank,
        }
    }
}
