//! Dates of expiry.

/// Seconds since 1970 of `2027-06-30` (its first moment in UTC) or `2027-06-30T12:00:00Z`.
pub(super) fn unix_secs(text: &str) -> Option<u64> {
    let (date, time) = text.split_once('T').unwrap_or((text, "00:00:00Z"));
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time.strip_suffix('Z')?, ':', [2, 2, 2])?;
    let valid = (1970..=9_999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day);
    let valid = valid && hour < 24 && minute < 60 && second < 60;
    valid.then(|| ((days_since_1970(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
}

fn numbers(text: &str, separator: char, lengths: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; 3];
    for (number, length) in numbers.iter_mut().zip(lengths) {
        let part = parts
            .next()
            .filter(|part| part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

fn days_in(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// By the rule of the Gregorian calendar: whole years, then whole months, then days.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let years = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    years + (1..month).map(|month| days_in(year, month)).sum::<u64>() + day - 1
}

#[cfg(test)]
mod tests {
    use super::unix_secs;

    #[test]
    fn dates_are_counted_from_1970() {
        let table = [
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400),
            ("2027-06-30", 1_814_313_600),
            ("2027-06-30T12:00:01Z", 1_814_356_801),
            ("2100-03-01", 4_107_542_400),
        ];
        for (text, expected) in table {
            assert_eq!(unix_secs(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for text in [
            "",
            "2027-02-29",
            "2100-02-29",
            "2027-13-01",
            "2027-00-10",
            "27-06-30",
            "2027-6-30",
            "2027-06-30T24:00:00Z",
            "2027-06-30T12:00:00",
            "2027-06-30-1",
            "1969-12-31",
        ] {
            assert_eq!(unix_secs(text), None, "{text}");
        }
    }
}
