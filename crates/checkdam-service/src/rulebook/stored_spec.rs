//! Rules, overrides and bans as the admin API sends and accepts them: the spec, and the
//! fields of the database row.

use std::fmt;
use std::marker::PhantomData;

use checkdam::time::rfc3339;
use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::snapshot::Stored;

/// The fields of a row that are not its item's.
const ROW_FIELDS: [&str; 4] = ["id", "version", "created_at", "updated_at"];

/// A `RuleSpec`, `OverrideSpec` or `BanSpec`, and what is known of its row.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredSpec<S> {
    #[serde(flatten)]
    pub spec: S,
    /// Its number.
    pub id: i64,
    /// From 1; every change of the row has a higher one. Also the ETag.
    pub version: u64,
    /// When it was made; null if it has no row.
    pub created_at: Option<String>,
    /// When it was last changed; null if it has no row.
    pub updated_at: Option<String>,
}

impl<S: for<'a> From<&'a T>, T> From<&Stored<T>> for StoredSpec<S> {
    fn from(stored: &Stored<T>) -> Self {
        let time = |unix_ms: i64| Some(rfc3339(u64::try_from(unix_ms / 1_000).ok()?)).filter(|_| stored.id > 0);
        Self {
            spec: S::from(&stored.item),
            id: stored.id,
            version: stored.version,
            created_at: time(stored.created_unix_ms),
            updated_at: time(stored.updated_unix_ms),
        }
    }
}

/// An item as it is written, or as it is answered: what only its row knows is ignored.
#[derive(Debug)]
pub struct WithoutRow<S>(pub S);

impl<'de, S: Deserialize<'de>> Deserialize<'de> for WithoutRow<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SpecVisitor<S>(PhantomData<S>);
        impl<'de, S: Deserialize<'de>> Visitor<'de> for SpecVisitor<S> {
            type Value = S;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a map of fields and values")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<S, A::Error> {
                S::deserialize(MapAccessDeserializer::new(SpecFields(map)))
            }
        }
        deserializer.deserialize_map(SpecVisitor(PhantomData)).map(Self)
    }
}

/// A map without the fields of a row.
struct SpecFields<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for SpecFields<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(name) = self.0.next_key::<String>()? {
            if ROW_FIELDS.contains(&name.as_str()) {
                self.0.next_value::<IgnoredAny>()?;
                continue;
            }
            return seed.deserialize(StringDeserializer::new(name)).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}
