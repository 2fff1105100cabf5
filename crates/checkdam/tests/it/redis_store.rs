//! What a Redis store needs from the program that makes it; the target `redis` has the rest.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use checkdam::store::redis::{RedisOptions, RedisStore, RedisStoreError, StoreUrlError};
use checkdam::store::{AnyStore, Operation, Store};

#[test]
fn a_store_outside_a_runtime_is_an_error() {
    let error = RedisStore::new(RedisOptions::new("redis://127.0.0.1:6379")).unwrap_err();
    assert_eq!(error, RedisStoreError::NoRuntime);
    assert!(error.to_string().contains("tokio"), "{error}");
}

#[tokio::test]
async fn tls_without_cryptography_is_an_error() {
    for url in ["rediss://127.0.0.1:6379", "rediss-cluster://a:1,b:2", "rediss-sentinel://a:1/main"] {
        let error = RedisStore::new(RedisOptions::new(url)).unwrap_err();
        assert_eq!(error, RedisStoreError::NoCryptoProvider, "{url}");
        assert!(error.to_string().contains("install_default"), "{error}");
        RedisOptions::new(url).validate().unwrap();
    }
}

#[tokio::test]
async fn a_store_is_chosen_by_its_url() {
    let memory = AnyStore::open("memory").unwrap();
    assert!(matches!(memory, AnyStore::Memory(_)) && memory.apply(Operation::Peek, &[]).await.at_us > 0);
    assert!(matches!(AnyStore::open("redis://127.0.0.1:6379").unwrap(), AnyStore::Redis(_)));
    let error = AnyStore::open("memcached://127.0.0.1").unwrap_err();
    assert!(matches!(error, RedisStoreError::Url(StoreUrlError { .. })), "{error}");
}
