//! The library through its public API, without servers. The targets `redis` and
//! `layer` need some; `allocations` and `flood` measure their whole process.

mod bans;
mod conformance;
mod definitions;
mod descriptors;
mod eviction;
mod index;
mod keyed_limiter;
mod leases;
mod limiter;
mod metered;
mod oracle;
mod overrides;
mod properties;
mod quota;
mod redis_store;
mod rule_file;
