//! Any file is a rule set, or a refusal in one line that says where.
#![no_main]

use checkdam::{Request, rule_file};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match rule_file::compile(text) {
        Ok(rules) => {
            let request = Request::new().with("user", "42").and_then(|request| request.with("ip", "10.0.0.1"));
            rules.explain(&request.expect("the request is fixed"), 10);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
