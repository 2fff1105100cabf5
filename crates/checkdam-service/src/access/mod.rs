//! Access control of the listeners: bearer tokens of the API and of operators, roles,
//! and which listeners accept privileged requests.
//!
//! Nothing here decides about limits. Tokens are compared in constant time and never
//! printed; a check of a token allocates nothing.

mod admin;
mod listener;
mod token;
mod token_files;

pub use self::admin::{AdminTokens, Caller, NamedToken, Role};
pub use self::listener::{ListenerAccess, ListenerTrust, PRIVILEGED_SETTING, PrivilegedRequests};
pub use self::token::{Separators, TokenError, TokenSet, bearer};
pub use self::token_files::follow_token_files;
