//! Times of the API, for people.

use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};

/// A time of the API, to the second.
pub(crate) fn moment(text: &str) -> String {
    match text.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => text.to_owned(),
    }
}

/// From one time of the API to another; `-` when the second has not come.
pub(crate) fn took(from: Option<&str>, to: Option<&str>) -> String {
    let read = |text: &str| OffsetDateTime::parse(text, &Rfc3339).ok();
    match (from.and_then(read), to.and_then(read)) {
        (Some(from), Some(to)) => span(to - from),
        _ => "-".to_owned(),
    }
}

/// What a running step says of itself: how far it is (0 to 1) and a message.
pub(crate) fn said(progress: Option<f64>, message: Option<&str>) -> String {
    let percent = progress.map(|part| format!("{:.0} %", part * 100.0));
    percent.into_iter().chain(message.map(str::to_owned)).collect::<Vec<_>>().join("  ")
}

fn span(time: Duration) -> String {
    let ms = time.whole_milliseconds().max(0);
    match ms {
        0..10_000 => format!("{ms} ms"),
        10_000..120_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        120_000..7_200_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1000),
        _ => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_shown_to_the_second() {
        assert_eq!(moment("2026-11-30T14:44:16.123Z"), "2026-11-30T14:44:16Z");
        assert_eq!(moment("later"), "later");
    }

    #[test]
    fn spans_are_as_precise_as_people_want_them() {
        let after = |to| took(Some("2026-11-30T14:00:00.000Z"), Some(to));
        for (to, expected) in [
            ("2026-11-30T14:00:00.042Z", "42 ms"),
            ("2026-11-30T14:00:12.345Z", "12.3 s"),
            ("2026-11-30T14:03:04.000Z", "3 min 4 s"),
            ("2026-12-01T14:05:00.000Z", "24 h 5 min"),
            ("2026-11-30T13:59:59.000Z", "0 ms"),
        ] {
            assert_eq!(after(to), expected);
        }
        assert_eq!(took(Some("2026-11-30T14:00:00Z"), None), "-");
    }
}
