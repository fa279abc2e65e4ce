//! Quantiles and ratios, and nothing else.

/// The `q`-quantile (0 to 1), interpolated between neighbours; 0 for nothing.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = q * sorted.len().saturating_sub(1) as f64;
    let at = |index: f64| sorted.get(index as usize).copied().unwrap_or(0.0);
    let (below, above) = (at(place.floor()), at(place.ceil()));
    below + (above - below) * place.fract()
}

pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The same thing measured once per turn on the floor and on the daemon, a moment apart.
#[derive(Default)]
pub struct Pairs {
    floor: Vec<f64>,
    daemon: Vec<f64>,
}

impl Pairs {
    pub fn push(&mut self, floor: f64, daemon: f64) {
        self.floor.push(floor);
        self.daemon.push(daemon);
    }

    pub fn floor(&self) -> f64 {
        median(&self.floor)
    }

    pub fn daemon(&self) -> f64 {
        median(&self.daemon)
    }

    /// Daemon over floor. Each turn is divided by its own floor before the median is taken: a machine
    /// that is slow for ten seconds is slow for both.
    pub fn ratio(&self) -> Spread {
        let ratios: Vec<f64> = self
            .floor
            .iter()
            .zip(&self.daemon)
            .map(|(floor, daemon)| daemon / floor)
            .collect();
        Spread {
            low: quantile(&ratios, 0.25),
            median: median(&ratios),
            high: quantile(&ratios, 0.75),
        }
    }
}

/// A median and the quartiles around it.
#[derive(Clone, Copy, serde::Serialize)]
pub struct Spread {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}
