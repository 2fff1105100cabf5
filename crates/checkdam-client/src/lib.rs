//! A client of checkdam.
