//! Timestamps as text: RFC 3339 for log lines, and the format in the names of rotated logs.

const DAY_S: i64 = 86_400;

/// Seconds since 1970 and the part of a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    pub seconds: i64,
    pub nanos: u32,
}

impl Moment {
    pub fn now() -> Moment {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Moment { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
    }

    pub fn day(self) -> i64 {
        self.seconds.div_euclid(DAY_S)
    }

    /// RFC 3339 with nanoseconds; trailing zeros are omitted.
    pub fn rfc3339(self, offset_s: i64) -> String {
        let [year, month, day, hour, minute, second] = fields(self.seconds + offset_s);
        let fraction = if self.nanos == 0 { String::new() } else { format!(".{:09}", self.nanos) };
        let fraction = fraction.trim_end_matches('0');
        let zone = if offset_s == 0 {
            "Z".to_string()
        } else {
            let sign = if offset_s < 0 { '-' } else { '+' };
            let minutes = offset_s.abs() / 60;
            format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
        };
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}{zone}")
    }

    /// In UTC, with milliseconds, without colons.
    pub fn file_stamp(self) -> String {
        let [year, month, day, hour, minute, second] = fields(self.seconds);
        let millis = self.nanos / 1_000_000;
        format!("{year:04}-{month:02}-{day:02}T{hour:02}-{minute:02}-{second:02}.{millis:03}")
    }

    pub fn from_file_stamp(stamp: &str) -> Option<Moment> {
        const SHAPE: &[u8; 23] = b"0000-00-00T00-00-00.000";
        let fits = |(byte, shape): (u8, &u8)| if *shape == b'0' { byte.is_ascii_digit() } else { byte == *shape };
        if stamp.len() != SHAPE.len() || !stamp.bytes().zip(SHAPE).all(fits) {
            return None;
        }
        let number = |from: usize, to: usize| stamp[from..to].parse::<i64>().ok();
        let (month, day) = (number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let seconds = days(number(0, 4)?, month, day) * DAY_S + hour * 3600 + minute * 60 + second;
        Some(Moment { seconds, nanos: number(20, 23)? as u32 * 1_000_000 })
    }
}

/// Year, month, day, hour, minute, second. Years begin in March, so that a leap day is the last day of its year.
fn fields(seconds: i64) -> [i64; 6] {
    let (days, rest) = (seconds.div_euclid(DAY_S) + 719_468, seconds.rem_euclid(DAY_S));
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * day + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let day = day - (153 * from_march + 2) / 5 + 1;
    let year = year + era * 400 + i64::from(month <= 2);
    [year, month, day, rest / 3600, rest / 60 % 60, rest % 60]
}

/// Days since 1970.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    era * 146_097 + year * 365 + year / 4 - year / 100 + (153 * from_march + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, nanos: u32) -> Moment {
        Moment { seconds, nanos }
    }

    #[test]
    fn moments_have_texts() {
        assert_eq!(at(0, 0).rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(1_704_164_645, 678_901_234).rfc3339(0), "2024-01-02T03:04:05.678901234Z");
        assert_eq!(at(1_709_164_800, 500_000_000).rfc3339(7200), "2024-02-29T02:00:00.5+02:00");
        assert_eq!(at(951_782_400, 0).rfc3339(-12_600), "2000-02-28T20:30:00-03:30");
        assert_eq!(at(4_107_542_399, 0).rfc3339(0), "2100-02-28T23:59:59Z");
    }

    #[test]
    fn stamps_survive_a_round() {
        for seconds in [0, 951_782_400, 951_868_800, 1_704_164_645, 1_735_689_599, 4_107_542_400] {
            let moment = at(seconds, 123_000_000);
            assert_eq!(Moment::from_file_stamp(&moment.file_stamp()), Some(moment));
        }
        assert_eq!(at(1_704_164_645, 9_999_999).file_stamp(), "2024-01-02T03-04-05.009");
        for stamp in
            ["", "2024-01-02T03-04-05", "2024-13-02T03-04-05.000", "2024-01-02T03:04:05.000", "x024-01-02T03-04-05.000"]
        {
            assert_eq!(Moment::from_file_stamp(stamp), None, "{stamp}");
        }
    }
}
