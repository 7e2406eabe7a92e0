//! Parameters of the master's web service: their names, limits and patterns, and the texts of errors, as the real master has
//! them.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::broker::http::message::{self, Request};
use crate::broker::tubemq::records::Edit;

/// Limit on the values of a list.
const MAX_VALUES: usize = 100;
/// Limit on the items of a batch.
const MAX_ITEMS: usize = 1000;
/// Limit on the length of a name.
const NAME: usize = 64;

/// A value, or the text of the error that its caller is told.
pub(super) type Checked<T> = Result<T, String>;

/// Form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    Any,
    Name,
    Group,
    Number,
}

impl Pattern {
    /// The rule that a value breaks.
    fn broken(self, value: &str) -> Option<&'static str> {
        let begins = value.starts_with(|c: char| c.is_ascii_alphabetic());
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        match self {
            Self::Name if !begins || !value.chars().all(word) => {
                Some("must begin with a letter, can only contain English letters, numbers, and underscores")
            }
            Self::Group if !begins || !value.chars().all(|c| word(c) || c == '-') => Some(
                "must begin with a letter, can only contain English letters, numbers, hyphens, and underscores",
            ),
            Self::Number if !is_number(value) => Some("must only contain numbers"),
            _ => None,
        }
    }
}

fn is_number(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// A parameter, which has a short name as well.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    short: &'static str,
    /// Limit on the length of a value.
    length: usize,
    pattern: Pattern,
}

const fn field(name: &'static str, short: &'static str, length: usize, pattern: Pattern) -> Field {
    Field { name, short, length, pattern }
}

const fn number(name: &'static str, short: &'static str) -> Field {
    field(name, short, usize::MAX, Pattern::Number)
}

const fn flag(name: &'static str, short: &'static str) -> Field {
    field(name, short, usize::MAX, Pattern::Any)
}

pub(super) const TOPIC: Field = field("topicName", "topic", NAME, Pattern::Name);
pub(super) const GROUP: Field = field("groupName", "group", 1024, Pattern::Group);
pub(super) const CONSUME_GROUP: Field = field("consumeGroup", "group", 1024, Pattern::Group);
pub(super) const BROKER_ID: Field = number("brokerId", "brokerId");
pub(super) const BROKER_IP: Field = field("brokerIp", "bIp", usize::MAX, Pattern::Any);
pub(super) const BROKER_PORT: Field = number("brokerPort", "brokerPort");
pub(super) const STATUS_ID: Field = number("topicStatusId", "tStsId");
pub(super) const PARTITIONS: Field = number("numPartitions", "numPart");
pub(super) const STORES: Field = number("numTopicStores", "numStore");
pub(super) const PUBLISH: Field = flag("acceptPublish", "accPub");
pub(super) const SUBSCRIBE: Field = flag("acceptSubscribe", "accSub");
pub(super) const ENABLE: Field = flag("isEnable", "isEnable");
pub(super) const ONLY_ABNORMAL: Field = flag("onlyAbnormal", "oAbn");
pub(super) const ONLY_FORBIDDEN: Field = flag("onlyAutoForbidden", "oAfb");
pub(super) const CREATE_USER: Field = field("createUser", "cur", NAME, Pattern::Name);
pub(super) const MODIFY_USER: Field = field("modifyUser", "mur", NAME, Pattern::Name);
const CREATE_DATE: Field = field("createDate", "cDate", 14, Pattern::Any);
const MODIFY_DATE: Field = field("modifyDate", "mDate", 14, Pattern::Any);
const DELETE_POLICY: Field = field("deletePolicy", "delPolicy", 1024, Pattern::Any);
const TOKEN: Field = field("confModAuthToken", "authToken", 128, Pattern::Any);
const TOPICS: Field = field("topicJsonSet", "topicSet", usize::MAX, Pattern::Any);

/// Settings of files and caches that the embedded broker does not have, with their limits. Callers state them all the same.
const TUNING: [(Field, i32, i32); 6] = [
    (number("unflushThreshold", "unfDskMsgCnt"), 0, i32::MAX),
    (number("unflushInterval", "unfDskInt"), 1, i32::MAX),
    (number("unflushDataHold", "unfDskDataSize"), 0, i32::MAX),
    (number("memCacheMsgSizeInMB", "cacheSizeInMB"), 2, 2048),
    (number("memCacheFlushIntvl", "unfMemInt"), 4000, i32::MAX),
    (number("memCacheMsgCntInK", "unfMemMsgCnt"), 1, i32::MAX),
];

/// Names and values of a request, or of an item of a batch.
#[derive(Clone, Debug)]
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// The parameters in the query of a request, and those of the form in its body.
    pub(super) fn of(request: &Request) -> Checked<Self> {
        let form = std::str::from_utf8(&request.body).ok().and_then(message::pairs);
        let form = form.ok_or("the form in the body is malformed")?;
        Ok(Self(request.query.iter().cloned().chain(form).collect()))
    }

    /// The value of a parameter, if it is not blank.
    fn value(&self, field: Field) -> Option<&str> {
        let find = |name| self.0.iter().find(|(key, _)| key == name);
        let (_, value) = find(field.name).or_else(|| find(field.short))?;
        let value = value.trim();
        let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        Some(inner.unwrap_or(value).trim()).filter(|value| !value.is_empty())
    }

    /// Name of the method.
    pub(super) fn method(&self) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == "method").map(|(_, value)| &**value)
    }

    /// Requires the code that callers must state with each change. Who may change something is decided by the rules of the
    /// broker, and not by this code, which all callers share.
    pub(super) fn require_token(&self) -> Checked<()> {
        self.required(TOKEN).map(drop)
    }

    /// A text that may be missing.
    pub(super) fn text(&self, field: Field) -> Checked<Option<&str>> {
        let Some(value) = self.value(field) else { return Ok(None) };
        check(field, value)?;
        Ok(Some(value))
    }

    /// A text.
    pub(super) fn required(&self, field: Field) -> Checked<&str> {
        self.text(field)?.ok_or_else(|| missing(field))
    }

    /// Texts, separated by commas. None are no condition.
    pub(super) fn texts(&self, field: Field) -> Checked<BTreeSet<&str>> {
        let listed = self.value(field).unwrap_or_default().split(',').map(str::trim);
        let mut texts = BTreeSet::new();
        for value in listed.filter(|value| !value.is_empty()) {
            check(field, value)?;
            texts.insert(value);
            if texts.len() > MAX_VALUES {
                let name = field.name;
                return Err(format!("Parameter {name}'s item count over max allowed count ({MAX_VALUES})!"));
            }
        }
        Ok(texts)
    }

    /// One text or more, separated by commas.
    pub(super) fn required_texts(&self, field: Field) -> Checked<BTreeSet<&str>> {
        Some(self.texts(field)?).filter(|texts| !texts.is_empty()).ok_or_else(|| missing(field))
    }

    /// A number that may be missing.
    pub(super) fn number(&self, field: Field, least: i32, most: i32) -> Checked<Option<i32>> {
        let Some(value) = self.text(field)? else { return Ok(None) };
        let number = parse(field, value)?;
        let wrong = |sign, limit: i32| format!("Parameter {} value must {sign} {limit}", field.name);
        if number < least {
            return Err(wrong(">=", least));
        }
        if number > most {
            return Err(wrong("<=", most));
        }
        Ok(Some(number))
    }

    /// A number from 0.
    pub(super) fn required_number(&self, field: Field) -> Checked<i32> {
        self.number(field, 0, i32::MAX)?.ok_or_else(|| missing(field))
    }

    /// Numbers, separated by commas. None are no condition.
    pub(super) fn numbers(&self, field: Field) -> Checked<BTreeSet<i32>> {
        self.texts(field)?.into_iter().map(|value| parse(field, value)).collect()
    }

    /// One number or more, separated by commas.
    pub(super) fn required_numbers(&self, field: Field) -> Checked<BTreeSet<i32>> {
        Some(self.numbers(field)?).filter(|numbers| !numbers.is_empty()).ok_or_else(|| missing(field))
    }

    /// `true`, `false`, or a number, of which 0 is false.
    pub(super) fn flag(&self, field: Field) -> Checked<Option<bool>> {
        let Some(value) = self.value(field) else { return Ok(None) };
        match value.to_ascii_lowercase().as_str() {
            "true" => Ok(Some(true)),
            "false" => Ok(Some(false)),
            number if is_number(number) => Ok(Some(!number.trim_matches(['-', '0']).is_empty())),
            _ => Err(format!("illegal value for {}, value must be true or false", field.name)),
        }
    }

    fn date(&self, field: Field) -> Checked<Option<&str>> {
        let Some(value) = self.text(field)? else { return Ok(None) };
        if !is_date(value) {
            let name = field.name;
            return Err(format!(
                "Parameter {name}'s value {value} parse error, required value format is yyyyMMddHHmmss"
            ));
        }
        Ok(Some(value))
    }

    /// Maker and date of a change.
    pub(super) fn modification(&self, now: &str) -> Checked<Edit> {
        self.edit(MODIFY_USER, MODIFY_DATE, None, now)
    }

    /// Maker and date of something new; in the second place those that are noted as its last change.
    pub(super) fn creation(&self, default: Option<&(Edit, Edit)>, now: &str) -> Checked<(Edit, Edit)> {
        let (created, modified) = default.map(|(created, modified)| (created, modified)).unzip();
        let created = self.edit(CREATE_USER, CREATE_DATE, created, now)?;
        let modified = self.edit(MODIFY_USER, MODIFY_DATE, Some(modified.unwrap_or(&created)), now)?;
        Ok((created, modified))
    }

    fn edit(&self, user: Field, date: Field, default: Option<&Edit>, now: &str) -> Checked<Edit> {
        let named = match default {
            Some(default) => self.text(user)?.unwrap_or(&default.user),
            None => self.required(user)?,
        };
        let dated = self.date(date)?.unwrap_or_else(|| default.map_or(now, |default| &default.date));
        Ok(Edit { user: named.into(), date: dated.into() })
    }

    /// The settings of a topic.
    pub(super) fn settings(&self) -> Checked<Settings> {
        let stores = self.number(STORES, 1, i32::MAX)?;
        let partitions = self.number(PARTITIONS, 1, i32::MAX)?;
        for (field, least, most) in TUNING {
            self.number(field, least, most)?;
        }
        Ok(Settings {
            stores,
            partitions: partitions.map(i32::unsigned_abs),
            policy: self.text(DELETE_POLICY)?.map(policy).transpose()?,
            publish: self.flag(PUBLISH)?,
            subscribe: self.flag(SUBSCRIBE)?,
        })
    }

    /// The items of a batch.
    pub(super) fn items(&self) -> Checked<Vec<Self>> {
        let name = TOPICS.name;
        let given: Value = serde_json::from_str(self.required(TOPICS)?)
            .map_err(|error| format!("Parameter {name} value parse failure, error is {error}!"))?;
        let wrong = || format!("Parameter {name} value parse failure, error is not an array of objects!");
        let items = given.as_array().ok_or_else(wrong)?;
        if items.is_empty() {
            return Err(format!("Not found record in {name} parameter!"));
        }
        if items.len() > MAX_ITEMS {
            return Err(format!("Parameter {name}'s item count over max allowed count ({MAX_ITEMS})!"));
        }
        items.iter().map(|item| item.as_object().map(Self::item).ok_or_else(wrong)).collect()
    }

    fn item(members: &serde_json::Map<String, Value>) -> Self {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let given = members.iter().filter(|(_, value)| !value.is_null());
        Self(given.map(|(name, value)| (name.clone(), text(value))).collect())
    }
}

/// Settings of a topic, as far as they are given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) stores: Option<i32>,
    pub(super) partitions: Option<u32>,
    /// Retention, as [`policy_of`] writes it.
    pub(super) policy: Option<String>,
    pub(super) publish: Option<bool>,
    pub(super) subscribe: Option<bool>,
}

/// Retention in milliseconds as the text of a policy, in the largest unit that is exact.
pub(super) fn policy_of(millis: u64) -> String {
    match millis.div_ceil(1000) {
        seconds if seconds % 3600 == 0 => format!("delete,{}h", seconds / 3600),
        seconds if seconds % 60 == 0 => format!("delete,{}m", seconds / 60),
        seconds => format!("delete,{seconds}s"),
    }
}

/// Reads `delete,168h`, with the units `s`, `m` and `h`, which may be missing.
fn policy(text: &str) -> Checked<String> {
    const LIKE: &str = "the format of DELETEPOLICY must like {method},{digital}[m|s|h]";
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let [method, time] = parts[..] else {
        return Err(format!("Value must include one and only one comma character, {LIKE}"));
    };
    if method.is_empty() {
        return Err(format!("Method value must not be blank, {LIKE}"));
    }
    if !method.eq_ignore_ascii_case("delete") {
        return Err("Field DELETEPOLICY only support delete method now!".to_owned());
    }
    let time = time.to_ascii_lowercase();
    let (digits, seconds) = match time.char_indices().next_back() {
        Some((at, 's')) => (&time[..at], 1),
        Some((at, 'm')) => (&time[..at], 60),
        Some((at, 'h')) => (&time[..at], 3600),
        Some((_, unit)) if unit.is_ascii_alphabetic() => {
            return Err("Field DELETEPOLICY only support [s|m|h] unit!".to_owned());
        }
        _ => (&*time, 3600),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "The value of field DELETEPOLICY's valid duration must digits!".to_owned())?;
    let millis = number.checked_mul(seconds * 1000).filter(|millis| *millis > 0);
    millis.map(policy_of).ok_or_else(|| "The value of field DELETEPOLICY must be greater than 0".to_owned())
}

fn missing(field: Field) -> String {
    format!("Parameter {} is missing or value is blank!", field.name)
}

fn check(field: Field, value: &str) -> Checked<()> {
    let Field { name, length, pattern, .. } = field;
    if value.chars().count() > length {
        return Err(format!("over max length for {name}, only allow {length} length"));
    }
    match pattern.broken(value) {
        Some(rule) => Err(format!("illegal value for {name}, value {rule}")),
        None => Ok(()),
    }
}

fn parse(field: Field, value: &str) -> Checked<i32> {
    value.parse().map_err(|_| format!("Parameter {} parse error: {value} is too large", field.name))
}

/// Whether a text is a date as `yyyyMMddHHmmss`.
fn is_date(text: &str) -> bool {
    let part = |from: usize, to: usize| text.get(from..to).and_then(|part| part.parse::<u32>().ok());
    let within = |from, to, least, most| part(from, to).is_some_and(|part| (least..=most).contains(&part));
    text.len() == 14
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && within(4, 6, 1, 12)
        && within(6, 8, 1, 31)
        && within(8, 10, 0, 23)
        && within(10, 12, 0, 59)
        && within(12, 14, 0, 59)
}

/// A time in milliseconds since 1970 as `yyyyMMddHHmmss`, in UTC.
pub(super) fn date_of(millis: u64) -> String {
    let seconds = millis / 1000;
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
}

/// Year, month and day of a number of days since 1970. Years are counted from March, so that a leap day is the last one.
fn civil(days: u64) -> (u64, u64, u64) {
    let since = days + 719_468;
    let (era, day_of_era) = (since / 146_097, since % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(query: &str) -> Parameters {
        Parameters(message::pairs(query).unwrap())
    }

    #[test]
    fn values_are_trimmed_and_found_by_both_names() {
        let given =
            parameters("topic=+%22%20demo+%22&brokerId=1++++&accPub=TRUE&acceptSubscribe=0&numPart=-0");
        assert_eq!(given.required(TOPIC), Ok("demo"));
        assert_eq!(given.required_numbers(BROKER_ID), Ok(BTreeSet::from([1])));
        assert_eq!((given.flag(PUBLISH), given.flag(SUBSCRIBE)), (Ok(Some(true)), Ok(Some(false))));
        assert_eq!(given.flag(ENABLE), Ok(None));
        assert!(given.settings().unwrap_err().contains("numPartitions value must >= 1"));
        assert_eq!(parameters("topicName=b,,a,+b").texts(TOPIC), Ok(BTreeSet::from(["a", "b"])));
        assert_eq!(parameters("topicName=,").required_texts(TOPIC), Err(missing(TOPIC)));
    }

    #[test]
    fn what_is_wrong_with_a_value_is_named() {
        for (query, word) in [
            ("topicName=1a", "illegal value for topicName"),
            ("topicName=a-b", "illegal value for topicName"),
            (&*format!("topicName={}", "a".repeat(65)), "only allow 64 length"),
            (&*format!("topicName={}", "\u{e9}".repeat(64)), "illegal value for topicName"),
        ] {
            assert!(parameters(query).required_texts(TOPIC).unwrap_err().contains(word), "{query}");
        }
        for (query, word) in [
            ("numPartitions=x", "must only contain numbers"),
            ("numPartitions=99999999999", "too large"),
            ("memCacheMsgSizeInMB=2049", "memCacheMsgSizeInMB value must <= 2048"),
            ("memCacheFlushIntvl=1", "value must >= 4000"),
            ("acceptPublish=maybe", "illegal value for acceptPublish"),
            ("deletePolicy=168h", "one and only one comma"),
            ("deletePolicy=,1h", "must not be blank"),
            ("deletePolicy=compact,1h", "only support delete"),
            ("deletePolicy=delete,1d", "[s|m|h]"),
            ("deletePolicy=delete,h", "must digits"),
            ("deletePolicy=delete,", "must digits"),
            ("deletePolicy=delete,0h", "greater than 0"),
            ("deletePolicy=delete,18446744073709551615h", "greater than 0"),
            ("deletePolicy=delete,\u{e9}", "must digits"),
        ] {
            let error = parameters(query).settings().unwrap_err();
            assert!(error.contains(word), "{query}: {error}");
        }
        let many = (0..101).map(|number| format!("t{number}")).collect::<Vec<_>>().join(",");
        assert!(parameters(&format!("topicName={many}")).texts(TOPIC).unwrap_err().contains("(100)"));
    }

    #[test]
    fn equal_policies_are_equal_texts() {
        for (text, same) in [
            ("delete,168h", "delete,168h"),
            ("DELETE , 168", "delete,168h"),
            ("delete,60m", "delete,1h"),
            ("delete,90s", "delete,90s"),
        ] {
            assert_eq!(policy(text).as_deref(), Ok(same));
        }
        assert_eq!(policy_of(90_500), "delete,91s");
    }

    #[test]
    fn changes_have_a_user_and_a_date() {
        let now = "20260102030405";
        let edit = |user: &str, date: &str| Edit { user: user.into(), date: date.into() };
        let made = parameters("createUser=ann").creation(None, now).unwrap();
        assert_eq!(made, (edit("ann", now), edit("ann", now)));
        let given = parameters("createUser=bob&createDate=20200101000000&modifyUser=eve");
        let both = (edit("bob", "20200101000000"), edit("eve", "20200101000000"));
        assert_eq!(given.creation(None, now).unwrap(), both);
        assert_eq!(parameters("").creation(Some(&both), now).unwrap(), both);
        assert_eq!(parameters("modifyUser=eve").modification(now), Ok(edit("eve", now)));
        assert_eq!(parameters("").modification(now), Err(missing(MODIFY_USER)));
        for date in ["2020", "20201301000000", "20200132000000", "20200101240000", "2020010100000x"] {
            let query = format!("modifyUser=eve&modifyDate={date}");
            assert!(parameters(&query).modification(now).unwrap_err().contains("yyyyMMddHHmmss"), "{date}");
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (millis, date) in [
            (0, "19700101000000"),
            (951_782_399_999, "20000228235959"),
            (951_782_400_000, "20000229000000"),
            (951_868_800_000, "20000301000000"),
            (1_704_067_199_000, "20231231235959"),
            (4_107_542_400_000, "21000301000000"),
        ] {
            assert_eq!(date_of(millis), date);
            assert!(is_date(date));
        }
        assert!(!date_of(u64::MAX).is_empty());
    }

    #[test]
    fn items_of_a_batch_are_objects() {
        let given = parameters(
            "topicJsonSet=[{\"topicName\":\"a\",\"brokerId\":1,\"acceptPublish\":false,\"x\":null}]",
        );
        let items = given.items().unwrap();
        assert_eq!(items.len(), 1);
        assert_eq!(items[0].required(TOPIC), Ok("a"));
        assert_eq!(items[0].required_number(BROKER_ID), Ok(1));
        assert_eq!(items[0].flag(PUBLISH), Ok(Some(false)));
        for (query, word) in [
            ("", "missing"),
            ("topicJsonSet=[", "parse failure"),
            ("topicJsonSet={}", "not an array"),
            ("topicJsonSet=[1]", "not an array"),
            ("topicJsonSet=[]", "Not found record"),
            (&*format!("topicJsonSet=[{}1]", "1,".repeat(MAX_ITEMS)), "(1000)"),
        ] {
            assert!(parameters(query).items().unwrap_err().contains(word), "{query}");
        }
    }
}
