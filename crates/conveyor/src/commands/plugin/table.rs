//! Tables for people.

use crate::document::printable;
use contract::Millis;
use std::fmt::Write;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Rows under a heading, in columns as wide as their widest cell.
#[derive(Debug)]
pub(in crate::commands) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub(in crate::commands) fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    /// Adds a row.
    pub(in crate::commands) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(Vec::from(cells.map(|cell| printable(&cell))));
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                write!(line, "{cell:<width$}  ")?;
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A time of the platform, in UTC to the second.
pub(super) fn moment(at: Millis) -> String {
    OffsetDateTime::from_unix_timestamp(at.0.div_euclid(1000))
        .ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| at.0.to_string())
}

/// A cell that may be empty.
pub(in crate::commands) fn or_dash(cell: Option<String>) -> String {
    cell.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_nothing_trails() {
        let mut table = Table::new(&["PLUGIN", "LABEL"]);
        table.row(["office".to_owned(), "Офис\u{1b}[31m".to_owned()]);
        table.row(["a-long-name".to_owned(), String::new()]);
        assert_eq!(table.to_string(), "PLUGIN       LABEL\noffice       Офис [31m\na-long-name\n");
    }

    #[test]
    fn moments_are_utc() {
        assert_eq!(moment(Millis(1_700_000_000_999)), "2023-11-14T22:13:20Z");
        assert_eq!(or_dash(Some(String::new())), "-");
    }
}
