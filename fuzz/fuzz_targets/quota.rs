//! Any text is a quota that can be counted, or a refusal.
#![no_main]

use checkdam::{Algorithm, Quota, QuotaSpec};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(spec) = text.parse::<QuotaSpec>() else { return };
    for algorithm in Algorithm::ALL {
        let Ok(quota) = Quota::new(spec, algorithm) else { continue };
        let again = Quota::new(quota.to_string().parse().expect("what is printed is understood"), algorithm);
        assert_eq!(again.as_ref(), Ok(&quota));
    }
});
