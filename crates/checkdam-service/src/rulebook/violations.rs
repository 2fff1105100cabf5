//! Violations in the database: written in batches, read newest first, pruned in
//! steps.

use serde_json::Value as Json;

use super::changes::rfc3339_ms;
use super::database::{Column, Conditions, Dialect, Kind, Value, without_nul};
use super::database_rulebook::{LOAD_LIMIT, Rulebook, within};
use super::snapshot::RulebookError;

const TABLE: &str = "rate_limit_violation";
const COLUMNS: [Column; 15] = [
    ("bucket_key", Kind::Text),
    ("user_id", Kind::Text),
    ("ip_address", Kind::Text),
    ("endpoint", Kind::Text),
    ("requested_at", Kind::Time),
    ("tokens_at_time", Kind::Real),
    ("rule_name", Kind::Text),
    ("subject", Kind::Text),
    ("method", Kind::Text),
    ("tenant", Kind::Text),
    ("cost", Kind::Int),
    ("limit_text", Kind::Text),
    ("retry_after_ms", Kind::Int),
    ("node", Kind::Text),
    ("decided_by", Kind::Text),
];
/// Rows in one statement.
const BATCH_MAX: usize = 2_000;
/// Rows that are removed before others get a turn.
const PRUNE_STEP: i64 = 5_000;
/// Rules that are pruned at a time.
const RULES_MAX: usize = 1_000;
/// Rows whose size is looked at, at either end.
const SAMPLED: usize = 1_000;
/// Texts stand in the row, and nearly all of them in an index too.
const INDEXED: u64 = 2;
/// What a row and its index entries take besides texts: measured with SQLite.
const ROW_BYTES: u64 = 200;
/// The most bytes that are recorded of an attribute.
pub(crate) const ATTRIBUTE_MAX: usize = 128;
/// The most bytes that are recorded of a subject.
pub(crate) const SUBJECT_MAX: usize = 256;
/// Rows on one page.
pub(super) const PAGE_MAX: u32 = 1_000;

/// A request that was denied, as it is recorded, kept and answered. It holds no
/// secret: never an API key.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[schema(as = ViolationAnswer, description = "One denied request.")]
pub struct Violation {
    /// Its number.
    #[serde(alias = "violation_id")]
    pub id: i64,
    /// The bucket that was empty.
    pub bucket_key: String,
    /// The user, if the request named one.
    pub user_id: Option<String>,
    pub ip_address: Option<String>,
    pub endpoint: Option<String>,
    pub method: Option<String>,
    pub tenant: Option<String>,
    /// When.
    // Empty until it is read back: no decision waits for its format.
    pub requested_at: String,
    /// The same in milliseconds since 1970.
    pub requested_at_ms: i64,
    /// What was left in the bucket.
    pub tokens_at_time: f64,
    /// The rule's row, if it is still there.
    pub rule_id: Option<i64>,
    /// The rule's name; `ban` for banned subjects.
    #[serde(alias = "rule_name")]
    pub rule: Option<String>,
    /// Whose bucket it was.
    pub subject: Option<String>,
    /// What the request asked for.
    pub cost: i64,
    /// The limit, such as `10/s burst 50`.
    #[serde(alias = "limit_text")]
    pub limit: Option<String>,
    /// How long it was to wait.
    pub retry_after_ms: Option<i64>,
    /// The node that denied it.
    pub node: Option<String>,
    /// What decided.
    pub decided_by: Option<String>,
}

/// Which violations are asked for; all that is given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ViolationFilter {
    pub user: Option<String>,
    pub ip: Option<String>,
    pub rule: Option<String>,
    pub subject: Option<String>,
    /// At or after.
    pub since_unix_ms: Option<i64>,
    /// Before.
    pub until_unix_ms: Option<i64>,
    /// Behind this violation, which is to say earlier.
    pub before_id: Option<i64>,
    /// At most so many, and at most 1,000.
    pub limit: u32,
}

/// What is kept; nothing given keeps everything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Those at or after.
    pub since_unix_ms: Option<i64>,
    /// So many of the newest.
    pub rows_max: Option<u64>,
    /// So many of the newest of each rule.
    pub rule_rows_max: Option<u64>,
    /// About so many bytes, indexes included, of the newest.
    pub bytes_max: Option<u64>,
}

impl Violation {
    /// Its row: some columns have other names than the fields.
    fn row(&self) -> Json {
        let mut row = serde_json::to_value(self).unwrap_or_default();
        for (field, column) in [("rule", "rule_name"), ("limit", "limit_text"), ("requested_at_ms", "requested_at")] {
            row[column] = row[field].take();
        }
        for value in row.as_object_mut().into_iter().flat_map(|row| row.values_mut()) {
            if let Json::String(text) = value {
                *text = without_nul(text);
            }
        }
        row
    }

    fn read(row: &str) -> serde_json::Result<Self> {
        let mut row: Json = serde_json::from_str(row)?;
        row["requested_at_ms"] = row["requested_at"].take();
        row["requested_at"] = rfc3339_ms(row["requested_at_ms"].as_i64().unwrap_or_default()).into();
        serde_json::from_value(row)
    }
}

impl Rulebook {
    /// Writes violations: all of them, or none.
    pub async fn write_violations(&self, violations: &[Violation]) -> Result<(), RulebookError> {
        let batches: Vec<String> = violations
            .chunks(BATCH_MAX)
            .map(|batch| Json::from(batch.iter().map(Violation::row).collect::<Vec<_>>()).to_string())
            .collect();
        within(LOAD_LIMIT, async {
            let mut session = self.engine.write().await?;
            let dialect = session.dialect();
            let rule =
                format!("(SELECT rule_id FROM rate_limit_rule WHERE name = {})", dialect.given_text("rule_name"));
            let sql = dialect.insert_with(TABLE, &COLUMNS, ("rule_id", &rule));
            for batch in batches {
                session.run(&sql, &[Value::Text(batch)]).await?;
            }
            session.commit().await
        })
        .await
    }

    pub async fn violations(&self, filter: &ViolationFilter) -> Result<Vec<Violation>, RulebookError> {
        let rows = within(LOAD_LIMIT, async {
            let mut session = self.engine.read().await?;
            let dialect = session.dialect();
            let mut behind = None;
            if let Some(id) = filter.before_id {
                let when =
                    format!("SELECT {} FROM {TABLE} WHERE violation_id = $1", dialect.milliseconds("requested_at"));
                // Violations go oldest first: if that one is gone, so are all behind it.
                let Some(when_ms) = session.number(&when, &[Value::Int(id)]).await? else { return Ok(Vec::new()) };
                behind = Some((when_ms, id));
            }
            let (conditions, values) = filter.sql(dialect, behind);
            let limit = filter.limit.min(PAGE_MAX);
            let rest = format!("{conditions} ORDER BY requested_at DESC, violation_id DESC LIMIT {limit}");
            let columns: Vec<Column> =
                [("violation_id", Kind::Int), ("rule_id", Kind::Int)].into_iter().chain(COLUMNS).collect();
            let rows = session.rows(&dialect.select(TABLE, &columns, &rest), &values).await?;
            session.commit().await?;
            Ok(rows)
        });
        let read = |row: &String| {
            Violation::read(row).map_err(|error| RulebookError::Invalid { reason: format!("{TABLE}: {error}") })
        };
        rows.await?.iter().map(read).collect()
    }

    /// Removes what is not to be kept, in steps that let writers through; how
    /// many rows went.
    pub async fn prune_violations(&self, keep: Retention) -> Result<u64, RulebookError> {
        let mut removed = 0;
        if let Some(since) = keep.since_unix_ms {
            let old = |dialect: Dialect| {
                format!("requested_at < {} ORDER BY requested_at", dialect.instant("CAST($1 AS BIGINT)"))
            };
            removed += self.prune(old, since).await?;
        }
        if let Some(rows_max) = keep.rule_rows_max {
            removed += self.prune_rules(rows_max).await?;
        }
        let rows_by_bytes = match keep.bytes_max {
            Some(bytes_max) => Some(bytes_max / self.row_bytes().await?),
            None => None,
        };
        if let Some(rows_max) = keep.rows_max.into_iter().chain(rows_by_bytes).min() {
            let first = self.number(
                format!("SELECT violation_id FROM {TABLE} ORDER BY violation_id DESC LIMIT 1 OFFSET $1"),
                vec![Value::Int(i64::try_from(rows_max).unwrap_or(i64::MAX))],
            );
            if let Some(first) = first.await? {
                removed += self.prune(|_| "violation_id <= $1 ORDER BY violation_id".to_owned(), first).await?;
            }
        }
        Ok(removed)
    }

    /// Removes what rules have beyond so many.
    async fn prune_rules(&self, rows_max: u64) -> Result<u64, RulebookError> {
        let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
        let mut removed = 0;
        for _ in 0..RULES_MAX {
            // The last violation of a rule that has too many, which names the rule.
            let full = format!(
                "SELECT MAX(violation_id) FROM {TABLE} WHERE rule_name IS NOT NULL GROUP BY rule_name HAVING COUNT(*) > $1 ORDER BY 1 LIMIT 1"
            );
            let Some(last) = self.number(full, vec![Value::Int(rows_max)]).await? else { break };
            let of_rule = format!("rule_name = (SELECT rule_name FROM {TABLE} WHERE violation_id = {last})");
            let first = format!(
                "SELECT violation_id FROM {TABLE} WHERE {of_rule} ORDER BY violation_id DESC LIMIT 1 OFFSET $1"
            );
            let Some(first) = self.number(first, vec![Value::Int(rows_max)]).await? else { break };
            removed += self.prune(|_| format!("{of_rule} AND violation_id <= $1 ORDER BY violation_id"), first).await?;
        }
        Ok(removed)
    }

    /// How many bytes a violation takes, about: the mean of the newest and of the
    /// oldest, whichever is more, with what indexes and the row itself need.
    async fn row_bytes(&self) -> Result<u64, RulebookError> {
        let texts = COLUMNS.iter().filter(|(_, kind)| matches!(kind, Kind::Text));
        let texts: Vec<String> = texts.map(|(name, _)| format!("COALESCE(OCTET_LENGTH({name}), 0)")).collect();
        let mut most = 0;
        for order in ["ASC", "DESC"] {
            let sampled = format!(
                "SELECT {} AS bytes FROM {TABLE} ORDER BY violation_id {order} LIMIT {SAMPLED}",
                texts.join(" + ")
            );
            let mean = format!("SELECT CAST(COALESCE(AVG(bytes), 0) AS BIGINT) FROM ({sampled}) AS sampled");
            most = most.max(self.number(mean, Vec::new()).await?.unwrap_or(0));
        }
        Ok(u64::try_from(most).unwrap_or(0) * INDEXED + ROW_BYTES)
    }

    async fn number(&self, sql: String, values: Vec<Value>) -> Result<Option<i64>, RulebookError> {
        within(LOAD_LIMIT, async {
            let mut session = self.engine.read().await?;
            let number = session.number(&sql, &values).await?;
            session.commit().await?;
            Ok(number)
        })
        .await
    }

    async fn prune(&self, which: impl Fn(Dialect) -> String, bound: i64) -> Result<u64, RulebookError> {
        let mut removed = 0;
        loop {
            let step = within(LOAD_LIMIT, async {
                let mut session = self.engine.write().await?;
                let which = which(session.dialect());
                let step = format!("SELECT violation_id FROM {TABLE} WHERE {which} LIMIT {PRUNE_STEP}");
                let sql = format!("DELETE FROM {TABLE} WHERE violation_id IN ({step})");
                let step = session.run(&sql, &[Value::Int(bound)]).await?;
                session.commit().await?;
                Ok(step)
            });
            let step = step.await?;
            removed += step;
            if step < PRUNE_STEP.unsigned_abs() {
                return Ok(removed);
            }
        }
    }
}

impl ViolationFilter {
    /// A WHERE clause and its values; `behind` is when and what the last one was.
    fn sql(&self, dialect: Dialect, behind: Option<(i64, i64)>) -> (String, Vec<Value>) {
        let mut conditions = Conditions::default();
        // As they were cut when they were recorded.
        let (user, ip) = (("user_id", &self.user, ATTRIBUTE_MAX), ("ip_address", &self.ip, ATTRIBUTE_MAX));
        let (rule, subject) = (("rule_name", &self.rule, usize::MAX), ("subject", &self.subject, SUBJECT_MAX));
        for (column, wanted, bytes_max) in [user, ip, rule, subject] {
            conditions
                .equal(column, wanted.as_ref().map(|wanted| checkdam::shortened_to(wanted, bytes_max)).as_deref());
        }
        conditions.within(dialect, "requested_at", self.since_unix_ms, self.until_unix_ms);
        if let Some((when_ms, id)) = behind {
            let instant = dialect.instant(&conditions.put(Value::Int(when_ms)));
            let id = conditions.put(Value::Int(id));
            conditions.push(format!("(requested_at, violation_id) < ({instant}, {id})"));
        }
        conditions.into_sql()
    }
}
