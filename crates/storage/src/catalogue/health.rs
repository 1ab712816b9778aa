//! What is found about the health of plugins. Only a change of state is a change of the catalogue.

use super::{Catalogue, Change, LOCK, grow};
use crate::{
    db::{in_tx, write},
    error::{Error, Result},
};
use contract::catalogue::{HEALTH_HISTORY, Health};
use sqlx::QueryBuilder;
use std::collections::{HashMap, HashSet};

/// What was found about a plugin.
pub type Finding<'a> = (&'a str, &'a Health);

// What a steady sweep writes: rows, without the lock under which the catalogue changes. The findings go
// in between, as rows of an unnamed table, whose columns both databases call the same.
const STEADY: [&str; 2] = [
    "UPDATE plugin_health SET since = found.column3, checked_at = found.column4, last_error = found.column5, \
                              failures = found.column6, successes = found.column7 FROM (",
    ") AS found WHERE plugin_id = found.column1 AND state = found.column2 RETURNING plugin_id",
];

const STATES: &str = "SELECT p.plugin_id, h.state FROM plugins p \
    LEFT JOIN plugin_health h ON h.plugin_id = p.plugin_id WHERE p.plugin_id IN (";

const PUT: [&str; 2] = [
    "INSERT INTO plugin_health (plugin_id, state, since, checked_at, last_error, failures, successes) ",
    " ON CONFLICT (plugin_id) DO UPDATE \
      SET state = excluded.state, since = excluded.since, checked_at = excluded.checked_at, \
          last_error = excluded.last_error, failures = excluded.failures, successes = excluded.successes",
];

// Two changes within a millisecond are one: what came of them counts.
const REMEMBER: [&str; 2] = [
    "INSERT INTO plugin_health_history (plugin_id, at, state, reason) ",
    " ON CONFLICT (plugin_id, at) DO UPDATE SET state = excluded.state, reason = excluded.reason",
];

const FORGET: [&str; 2] = [
    "DELETE FROM plugin_health_history WHERE plugin_id IN (",
    ") AND at NOT IN (SELECT x.at FROM plugin_health_history x \
                      WHERE x.plugin_id = plugin_health_history.plugin_id ORDER BY x.at DESC LIMIT ",
];

/// `in_list!(query, values)`: the values, separated.
macro_rules! in_list {
    ($query:ident, $values:expr) => {{
        let mut list = $query.separated(", ");
        for value in $values {
            list.push_bind(value);
        }
    }};
}

/// `found!(query, findings)`: the findings as rows.
macro_rules! found {
    ($query:ident, $findings:expr) => {
        $query.push_values($findings, |mut row, (plugin_id, health)| {
            row.push_bind(plugin_id).push_bind(health.state.as_str());
            row.push_bind(health.since.map(|at| at.0)).push_bind(health.checked_at.map(|at| at.0));
            row.push_bind(health.last_error.as_deref());
            row.push_bind(i64::from(health.failures)).push_bind(i64::from(health.successes));
        })
    };
}

impl Catalogue {
    /// Stores what was found about a plugin, and a change of state in the plugin's history. The revision
    /// grows only when the state changes: a steady sweep invalidates no cache. `changed` tells the same.
    pub async fn record_health(&self, plugin_id: &str, health: &Health) -> Result<Change> {
        let change = self.record_health_of_all(&[(plugin_id, health)]).await?.pop();
        change.ok_or_else(|| Error::InvalidValue { reason: "no finding".to_owned() })
    }

    /// Like [`Catalogue::record_health`], for several plugins at once, each of which is named once. The
    /// answers are in their order.
    pub async fn record_health_of_all(&self, findings: &[Finding<'_>]) -> Result<Vec<Change>> {
        if findings.is_empty() {
            return Ok(Vec::new());
        }
        let steady = self.recorded_steady(findings).await?;
        let others: Vec<Finding<'_>> =
            findings.iter().copied().filter(|(plugin_id, _)| !steady.contains(*plugin_id)).collect();
        let (mut changes, revision) = match others.is_empty() {
            true => (HashMap::new(), self.revision().await?),
            false => self.recorded_changes(&others).await?,
        };
        let change = |(plugin_id, _): &Finding<'_>| match changes.remove(*plugin_id) {
            Some(revision) => Change { changed: true, revision },
            None => Change { changed: false, revision },
        };
        Ok(findings.iter().map(change).collect())
    }

    /// Stores the findings about plugins whose state stays what it is; tells which these are.
    async fn recorded_steady(&self, findings: &[Finding<'_>]) -> Result<HashSet<String>> {
        // Rows are locked in one order, whoever stores them.
        let mut findings = findings.to_vec();
        findings.sort_unstable_by_key(|(plugin_id, _)| *plugin_id);
        let steady: Vec<String> = write!(&self.db, |c| {
            let mut query = QueryBuilder::new(STEADY[0]);
            found!(query, &findings);
            query.push(STEADY[1]);
            Ok(query.build_query_scalar().persistent(findings.len() == 1).fetch_all(c).await?)
        })?;
        Ok(steady.into_iter().collect())
    }

    /// Stores findings that may change states: the revision of each plugin whose state did change, and
    /// the last revision. What is found about a plugin that the catalogue does not know is dropped.
    async fn recorded_changes(&self, findings: &[Finding<'_>]) -> Result<(HashMap<String, i64>, i64)> {
        in_tx!(&self.db, |c| {
            let revision: i64 = sqlx::query_scalar(LOCK).fetch_one(&mut *c).await?;
            let mut query = QueryBuilder::new(STATES);
            in_list!(query, findings.iter().map(|(plugin_id, _)| *plugin_id));
            query.push(")");
            let states: Vec<(String, Option<String>)> =
                query.build_query_as().persistent(false).fetch_all(&mut *c).await?;
            let states: HashMap<String, Option<String>> = states.into_iter().collect();
            let known: Vec<Finding<'_>> =
                findings.iter().copied().filter(|(plugin_id, _)| states.contains_key(*plugin_id)).collect();
            let differs = |(plugin_id, health): &Finding<'_>| {
                let state = states.get(*plugin_id).and_then(Option::as_deref);
                state.unwrap_or("unknown") != health.state.as_str()
            };
            let changed: Vec<Finding<'_>> = known.iter().copied().filter(differs).collect();
            if !known.is_empty() {
                let mut query = QueryBuilder::new(PUT[0]);
                found!(query, &known);
                query.push(PUT[1]).build().persistent(false).execute(&mut *c).await?;
            }
            let about: Vec<&str> = changed.iter().map(|(plugin_id, _)| *plugin_id).collect();
            if !changed.is_empty() {
                let mut query = QueryBuilder::new(REMEMBER[0]);
                query.push_values(&changed, |mut row, (plugin_id, health)| {
                    let at = health.since.or(health.checked_at).unwrap_or_default();
                    row.push_bind(plugin_id).push_bind(at.0).push_bind(health.state.as_str());
                    row.push_bind(health.last_error.as_deref());
                });
                query.push(REMEMBER[1]).build().persistent(false).execute(&mut *c).await?;
                let mut query = QueryBuilder::new(FORGET[0]);
                in_list!(query, about.iter().copied());
                query.push(FORGET[1]).push_bind(i64::try_from(HEALTH_HISTORY).unwrap_or(i64::MAX)).push(")");
                query.build().persistent(false).execute(&mut *c).await?;
                grow!(c, revision, about);
            }
            let last = revision + i64::try_from(about.len()).unwrap_or(i64::MAX);
            let grown = about.iter().map(|plugin_id| (*plugin_id).to_owned()).zip(revision + 1..);
            Ok((grown.collect(), last))
        })
    }
}
