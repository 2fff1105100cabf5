//! Any body is a request, or a problem that says what is wrong.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    if let Err(problem) = checkdam_server::read_check_body(body) {
        assert!(problem.contains("\"detail\""), "{problem}");
    }
});
