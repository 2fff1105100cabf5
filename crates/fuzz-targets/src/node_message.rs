//! Fuzz target: decoding and decryption of messages between nodes.

use checkdam::store::redis::fuzzing::{open, seal};
use checkdam_service::fuzzing::nodes::{receive_plaintext, receive_status};

const SECRET: &str = "a secret that the nodes share";

/// Bytes are a message or none; they are never opened without the secret, and what is sealed with
/// it is opened with it alone.
pub fn node_message(data: &[u8]) {
    assert_eq!(open(SECRET, data), None, "opened without the secret");
    let mut sealed = seal(SECRET, data).expect("the system has random numbers");
    assert_eq!(open(SECRET, &sealed).as_deref(), Some(data));
    assert_eq!(open("another secret", &sealed), None);
    let place = data.iter().map(|byte| usize::from(*byte)).sum::<usize>() % sealed.len();
    sealed[place] ^= 1;
    assert_eq!(open(SECRET, &sealed), None, "byte {place} was changed");
    receive_plaintext(data);
    if let Some(encoded) = receive_status(data) {
        assert_eq!(receive_status(&encoded).as_ref(), Some(&encoded), "a message is encoded as it was decoded");
    }
}
