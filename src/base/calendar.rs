//! Dates of the Gregorian calendar, by the algorithms of Howard Hinnant: years begin in March, so
//! that the leap day is the last one.

/// Days from the March that begins the year 0 to 1970.
const EPOCH: u64 = 719_468;
/// Days in 400 years, after which the calendar repeats.
const ERA: u64 = 146_097;

/// Year, month and day of a number of days since 1970.
pub fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + EPOCH;
    let (era, day_of_era) = (shifted / ERA, shifted % ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// Days since 1970 of a date; `None` before that. The month is from 1 to 12.
pub fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let shifted_year = year - u64::from(month <= 2);
    let (era, year_of_era) = (shifted_year / 400, shifted_year % 400);
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * ERA + day_of_era).checked_sub(EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_that_of_its_days() {
        for (number, of) in [
            (0, (1970, 1, 1)),
            (11_015, (2000, 2, 28)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_453, (2025, 12, 31)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(number), of);
            assert_eq!(days(of.0, of.1, of.2), Some(number));
        }
        assert_eq!(days(1969, 12, 31), None);
    }
}
