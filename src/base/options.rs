//! Options of clients, producers, consumers and the broker. [`options!`](crate::options!) declares
//! each option once: name, type, default, text and level. Structs and their defaults, the readers
//! of the bindings, Python's tables and signatures, `-X help` and the tables of the docs follow
//! from the declaration.

use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// Audience of an option. Docs, help and completion show common options first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Most programs set it.
    Common,
    /// The default suits most programs.
    Advanced,
}

/// Values that an option takes. The bindings choose the parser and the type by it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// True or false.
    Flag,
    /// A time span.
    Duration,
    /// Bytes.
    Size,
    /// A whole number within both limits.
    Whole(i64, i64),
    /// Text that is not empty.
    Text,
    /// One of several words.
    Words(&'static [&'static str]),
    /// A mapping of text to text.
    Pairs,
    /// Another form, by its name in `tools/generate_options.py`.
    Own(&'static str),
}

impl Kind {
    /// Name of the kind; that of another form is its own.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Duration => "duration",
            Self::Size => "size",
            Self::Whole(..) => "whole",
            Self::Text => "text",
            Self::Words(_) => "words",
            Self::Pairs => "pairs",
            Self::Own(name) => name,
        }
    }
}

/// A default as users see it.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// The option is not set, or its text names the default.
    Unset,
    /// True or false.
    Flag(bool),
    /// A number.
    Whole(i64),
    /// A time span in seconds.
    Seconds(f64),
    /// Text or a word.
    Text(String),
}

/// Declaration of an option but for its name, text and type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Form {
    kind: Kind,
    level: Level,
    secret: bool,
    face: bool,
    at_limit: &'static str,
    default: Option<Fixed>,
    least: Duration,
}

/// The longest time span, about 30 years: a point in time so far off can still be computed.
const LONGEST: Duration = Duration::from_secs(1_000_000_000);

/// A default that is not that of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fixed {
    Unset,
    Flag(bool),
    Whole(i64),
    Seconds(f64),
    Word(&'static str),
}

impl Form {
    /// An option of a kind: advanced, and not secret.
    pub const fn new(kind: Kind) -> Self {
        let (at_limit, least) = ("", Duration::ZERO);
        Self { kind, level: Level::Advanced, secret: false, face: false, at_limit, default: None, least }
    }

    /// Marks an option that most programs set.
    pub const fn common(self) -> Self {
        Self { level: Level::Common, ..self }
    }

    /// Marks an option whose value is never shown.
    pub const fn secret(self) -> Self {
        Self { secret: true, ..self }
    }

    /// Marks an option that the bindings use and the engine does not get.
    pub const fn face(self) -> Self {
        Self { face: true, ..self }
    }

    /// Sets the shortest time span.
    pub const fn least(self, least: Duration) -> Self {
        Self { least, ..self }
    }

    /// Says what happens when a limit of the broker is reached.
    pub const fn at_limit(self, at_limit: &'static str) -> Self {
        Self { at_limit, ..self }
    }

    /// Hides the default of the field, because it depends on other options.
    pub const fn unset(self) -> Self {
        Self { default: Some(Fixed::Unset), ..self }
    }

    /// Sets the default of an option without a field.
    pub const fn flag(self, default: bool) -> Self {
        Self { default: Some(Fixed::Flag(default)), ..self }
    }

    /// Sets the default of an option without a field.
    pub const fn number(self, default: i64) -> Self {
        Self { default: Some(Fixed::Whole(default)), ..self }
    }

    /// Sets the default of an option without a field of that type.
    pub const fn seconds(self, default: Duration) -> Self {
        Self { default: Some(Fixed::Seconds(default.as_secs_f64())), ..self }
    }

    /// Sets the default of an option without a field of that type.
    pub const fn word(self, default: &'static str) -> Self {
        Self { default: Some(Fixed::Word(default)), ..self }
    }

    #[doc(hidden)]
    pub const fn words(self, words: &'static [&'static str]) -> Self {
        Self { kind: Kind::Words(words), ..self }
    }

    #[doc(hidden)]
    pub fn spec(self, name: &'static str, text: &'static str, default: Shown) -> OptionSpec {
        let default = match self.default {
            None => default,
            Some(Fixed::Unset) => Shown::Unset,
            Some(Fixed::Flag(value)) => Shown::Flag(value),
            Some(Fixed::Whole(value)) => Shown::Whole(value),
            Some(Fixed::Seconds(value)) => Shown::Seconds(value),
            Some(Fixed::Word(value)) => Shown::Text(value.into()),
        };
        let Self { kind, level, secret, face, at_limit, least, .. } = self;
        OptionSpec { name, kind, default, text: text.trim_start(), level, secret, face, at_limit, least }
    }

    #[doc(hidden)]
    pub fn check(self, name: &str, value: &Shown) -> crate::error::Result<()> {
        let limits = match (self.kind, value) {
            (Kind::Whole(low, high), Shown::Whole(given)) if !(low..=high).contains(given) => {
                format!("{given}: use {low} to {high}")
            }
            (Kind::Duration, Shown::Seconds(given)) if *given < self.least.as_secs_f64() => {
                format!("{given} s: use at least {} s", self.least.as_secs_f64())
            }
            (Kind::Duration, Shown::Seconds(given)) if *given > LONGEST.as_secs_f64() => {
                format!("{given} s: use at most {} s", LONGEST.as_secs())
            }
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::InvalidArgument, format!("{name} is {limits}")))
    }
}

/// True or false.
pub const FLAG: Form = Form::new(Kind::Flag);
/// A time span.
pub const DURATION: Form = Form::new(Kind::Duration);
/// Bytes.
pub const SIZE: Form = Form::new(Kind::Size);
/// Text that is not empty.
pub const TEXT: Form = Form::new(Kind::Text);
/// One of the words that the declaration lists.
pub const WORD: Form = Form::new(Kind::Words(&[]));
/// A mapping of text to text.
pub const PAIRS: Form = Form::new(Kind::Pairs);

/// A whole number within both limits.
pub const fn whole(low: i64, high: i64) -> Form {
    Form::new(Kind::Whole(low, high))
}

/// A whole number of at least `low`.
pub const fn at_least(low: i64) -> Form {
    whole(low, i32::MAX as i64)
}

/// Another form, by its name in `tools/generate_options.py`.
pub const fn own(name: &'static str) -> Form {
    Form::new(Kind::Own(name))
}

/// An option, as the bindings and the docs get it.
#[derive(Clone, Debug, PartialEq)]
pub struct OptionSpec {
    /// Name.
    pub name: &'static str,
    /// Values that it takes.
    pub kind: Kind,
    /// Default.
    pub default: Shown,
    /// Text for users.
    pub text: &'static str,
    /// Audience.
    pub level: Level,
    /// Whether its value is never shown.
    pub secret: bool,
    /// Whether the bindings use it and the engine does not get it.
    pub face: bool,
    /// For a limit of the broker: what happens when it is reached.
    pub at_limit: &'static str,
    /// The shortest time span.
    pub least: Duration,
}

/// Values of options by name. `None` is an option that is not given.
pub trait Source {
    /// Error of a value of another type.
    type Error;

    /// The error of a value that an option does not take.
    fn invalid(&self, name: &str, text: String) -> Self::Error;
    /// Reads true or false.
    fn flag(&self, name: &str) -> Result<Option<bool>, Self::Error>;
    /// Reads a number.
    fn whole(&self, name: &str) -> Result<Option<i64>, Self::Error>;
    /// Reads a time span.
    fn duration(&self, name: &str) -> Result<Option<Duration>, Self::Error>;
    /// Reads text.
    fn text(&self, name: &str) -> Result<Option<String>, Self::Error>;
    /// Reads bytes.
    fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, Self::Error>;
    /// Reads a mapping of text to text.
    fn pairs(&self, name: &str) -> Result<Option<Vec<(String, String)>>, Self::Error>;
}

/// A field that [`options!`](crate::options!) reads and whose default it shows.
pub trait Value: Sized {
    /// The value as a default.
    fn shown(&self) -> Shown;
    /// Reads the option into the field, if it is given.
    fn read<S: Source>(&mut self, source: &S, name: &str) -> Result<(), S::Error>;
}

/// Puts a value that is given into a field.
fn put<T>(into: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *into = value;
    }
}

impl Value for bool {
    fn shown(&self) -> Shown {
        Shown::Flag(*self)
    }

    fn read<S: Source>(&mut self, source: &S, name: &str) -> Result<(), S::Error> {
        put(self, source.flag(name)?);
        Ok(())
    }
}

impl Value for Duration {
    fn shown(&self) -> Shown {
        Shown::Seconds(self.as_secs_f64())
    }

    fn read<S: Source>(&mut self, source: &S, name: &str) -> Result<(), S::Error> {
        put(self, source.duration(name)?);
        Ok(())
    }
}

/// A time limit. 0 disables it.
impl Value for Option<Duration> {
    fn shown(&self) -> Shown {
        self.unwrap_or_default().shown()
    }

    fn read<S: Source>(&mut self, source: &S, name: &str) -> Result<(), S::Error> {
        put(self, source.duration(name)?.map(|limit| (!limit.is_zero()).then_some(limit)));
        Ok(())
    }
}

macro_rules! whole_values {
    ($($type:ty)*) => {$(
        impl Value for $type {
            fn shown(&self) -> Shown {
                i64::try_from(*self).map_or(Shown::Unset, Shown::Whole)
            }

            fn read<S: Source>(&mut self, source: &S, name: &str) -> Result<(), S::Error> {
                let Some(given) = source.whole(name)? else { return Ok(()) };
                *self = Self::try_from(given).map_err(|_| {
                    source.invalid(name, format!("{given}, which is out of range"))
                })?;
                Ok(())
            }
        }

        impl Value for Option<$type> {
            fn shown(&self) -> Shown {
                self.map_or(Shown::Unset, |value| value.shown())
            }

            fn read<S: Source>(&mut self, source: &S, name: &str) -> Result<(), S::Error> {
                let mut value = <$type>::default();
                if source.whole(name)?.is_some() {
                    value.read(source, name)?;
                    *self = Some(value);
                }
                Ok(())
            }
        }
    )*};
}

whole_values! { u16 u32 u64 usize i32 i64 }

impl Value for String {
    fn shown(&self) -> Shown {
        if self.is_empty() { Shown::Unset } else { Shown::Text(self.clone()) }
    }

    fn read<S: Source>(&mut self, source: &S, name: &str) -> Result<(), S::Error> {
        put(self, source.text(name)?);
        Ok(())
    }
}

impl Value for Option<String> {
    fn shown(&self) -> Shown {
        self.clone().map_or(Shown::Unset, Shown::Text)
    }

    fn read<S: Source>(&mut self, source: &S, name: &str) -> Result<(), S::Error> {
        put(self, source.text(name)?.map(Some));
        Ok(())
    }
}

impl Value for Option<Vec<u8>> {
    fn shown(&self) -> Shown {
        Shown::Unset
    }

    fn read<S: Source>(&mut self, source: &S, name: &str) -> Result<(), S::Error> {
        put(self, source.bytes(name)?.map(Some));
        Ok(())
    }
}

impl Value for Vec<(String, String)> {
    fn shown(&self) -> Shown {
        Shown::Unset
    }

    fn read<S: Source>(&mut self, source: &S, name: &str) -> Result<(), S::Error> {
        put(self, source.pairs(name)?);
        Ok(())
    }
}

/// Reads one of several words into a field.
#[doc(hidden)]
pub fn read_word<T: Clone, S: Source>(
    source: &S,
    name: &str,
    words: &[(&str, T)],
    into: &mut T,
) -> Result<(), S::Error> {
    let Some(text) = source.text(name)? else { return Ok(()) };
    let Some((_, value)) = words.iter().find(|(word, _)| *word == text) else {
        let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        return Err(source.invalid(name, format!("{text:?}: use one of {}", known.join(", "))));
    };
    *into = value.clone();
    Ok(())
}

/// The word of a value.
#[doc(hidden)]
pub fn shown_word<T: PartialEq>(words: &[(&str, T)], value: &T) -> Shown {
    let word = words.iter().find(|(_, known)| known == value);
    word.map_or(Shown::Unset, |(word, _)| Shown::Text((*word).into()))
}

/// Declares a struct of options with its `Default`, `specs` (a list of [`OptionSpec`]) and `read`
/// (from a [`Source`]).
///
/// The doc comment of an option is its text for users. Each entry begins with how it is read:
///
/// * `option FIELD: TYPE = DEFAULT => FORM;` is read by its type, a [`Value`]
/// * `words FIELD: TYPE = DEFAULT of ["word" => VALUE, ...] => WORD;` is read as one of the words
/// * `custom FIELD: TYPE = DEFAULT => FORM;` is read by the bindings. Users see the default of the
///   form
/// * `row NAME => FORM;` has no field of its own, or is used in the bindings only
/// * `field FIELD: TYPE = DEFAULT;` is no option for users
///
/// `as "name"` behind a field gives the option another name. `prefix "mqtt_"` behind the name of
/// the struct stands before the names of all options.
#[macro_export]
macro_rules! options {
    ($(#[$meta:meta])* $vis:vis struct $struct:ident $(prefix $prefix:literal)? { $($body:tt)* }) => {
        $crate::options! { @entry [$(#[$meta])* $vis struct $struct] [$($prefix)?] [] [] [] [] $($body)* }
    };

    // The prefix, then fields, fields that are read by type, fields that are read as words, and
    // specs.
    (@entry [$($head:tt)*] [$($prefix:literal)?] [$($fields:tt)*] [$($plain:tt)*] [$($words:tt)*] [$($specs:tt)*]
        $(#[doc = $doc:literal])+ option $name:ident: $type:ty = $default:expr => $form:expr; $($rest:tt)*
    ) => {
        $crate::options! { @entry [$($head)*] [$($prefix)?]
            [$($fields)* { ($($doc)+) $name ($type) ($default) }]
            [$($plain)* { $name (concat!($($prefix,)? stringify!($name))) }]
            [$($words)*]
            [$($specs)* { ($($doc)+) (concat!($($prefix,)? stringify!($name))) ($form) plain $name }]
            $($rest)*
        }
    };
    (@entry [$($head:tt)*] [$($prefix:literal)?] [$($fields:tt)*] [$($plain:tt)*] [$($words:tt)*] [$($specs:tt)*]
        $(#[doc = $doc:literal])+ words $name:ident: $type:ty = $default:expr
            => of $known:tt $form:expr; $($rest:tt)*
    ) => {
        $crate::options! { @entry [$($head)*] [$($prefix)?] [$($fields)*] [$($plain)*] [$($words)*] [$($specs)*]
            $(#[doc = $doc])+ words $name as (concat!($($prefix,)? stringify!($name))):
                $type = $default => of $known $form; $($rest)*
        }
    };
    (@entry [$($head:tt)*] [$($prefix:literal)?] [$($fields:tt)*] [$($plain:tt)*] [$($words:tt)*] [$($specs:tt)*]
        $(#[doc = $doc:literal])+ words $name:ident as $shown:tt: $type:ty = $default:expr
            => of [$($word:literal = $value:expr),+ $(,)?] $form:expr; $($rest:tt)*
    ) => {
        $crate::options! { @entry [$($head)*] [$($prefix)?]
            [$($fields)* { ($($doc)+) $name ($type) ($default) }]
            [$($plain)*]
            [$($words)* { $name $shown [$(($word, $value)),+] }]
            [$($specs)* { ($($doc)+) $shown ($form.words(&[$($word),+])) words $name [$(($word, $value)),+] }]
            $($rest)*
        }
    };
    (@entry [$($head:tt)*] [$($prefix:literal)?] [$($fields:tt)*] [$($plain:tt)*] [$($words:tt)*] [$($specs:tt)*]
        $(#[doc = $doc:literal])+ custom $name:ident: $type:ty = $default:expr => $form:expr; $($rest:tt)*
    ) => {
        $crate::options! { @entry [$($head)*] [$($prefix)?]
            [$($fields)* { ($($doc)+) $name ($type) ($default) }]
            [$($plain)*]
            [$($words)*]
            [$($specs)* { ($($doc)+) (concat!($($prefix,)? stringify!($name))) ($form) none }]
            $($rest)*
        }
    };
    (@entry [$($head:tt)*] [$($prefix:literal)?] [$($fields:tt)*] [$($plain:tt)*] [$($words:tt)*] [$($specs:tt)*]
        $(#[doc = $doc:literal])+ row $name:ident => $form:expr; $($rest:tt)*
    ) => {
        $crate::options! { @entry [$($head)*] [$($prefix)?]
            [$($fields)*]
            [$($plain)*]
            [$($words)*]
            [$($specs)* { ($($doc)+) (concat!($($prefix,)? stringify!($name))) ($form) none }]
            $($rest)*
        }
    };
    (@entry [$($head:tt)*] [$($prefix:literal)?] [$($fields:tt)*] [$($plain:tt)*] [$($words:tt)*] [$($specs:tt)*]
        $(#[doc = $doc:literal])+ field $name:ident: $type:ty = $default:expr; $($rest:tt)*
    ) => {
        $crate::options! { @entry [$($head)*] [$($prefix)?]
            [$($fields)* { ($($doc)+) $name ($type) ($default) }]
            [$($plain)*]
            [$($words)*]
            [$($specs)*]
            $($rest)*
        }
    };

    (@entry [$(#[$meta:meta])* $vis:vis struct $struct:ident] [$($prefix:literal)?]
        [$({ ($($doc:literal)+) $name:ident ($type:ty) ($default:expr) })*]
        [$({ $plain:ident $plain_name:tt })*]
        [$({ $words:ident $words_name:tt [$($known:tt),+] })*]
        [$({ ($($text:literal)+) $spec_name:tt ($form:expr) $($shown:tt)+ })*]
    ) => {
        $(#[$meta])*
        $vis struct $struct {
            $($(#[doc = $doc])+ pub $name: $type,)*
        }

        #[allow(clippy::derivable_impls)]
        impl Default for $struct {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl $struct {
            /// The options that users have, in the order of their declaration.
            pub fn specs() -> Vec<$crate::options::OptionSpec> {
                let defaults = Self::default();
                let _ = &defaults;
                vec![$(
                    $form.spec($spec_name, concat!($($text),+), $crate::options!(@shown defaults $($shown)+)),
                )*]
            }

            /// Checks the limits of the options that need no conversion of their own, for
            /// values that were not read.
            pub fn check(&self) -> $crate::error::Result<()> {
                let given = self;
                let _ = given;
                $($crate::options!(@check given ($form) $spec_name $($shown)+);)*
                Ok(())
            }

            /// Reads the options that need no conversion of their own.
            pub fn read<S: $crate::options::Source>(&mut self, source: &S) -> Result<(), S::Error> {
                $($crate::options::Value::read(&mut self.$plain, source, $plain_name)?;)*
                $($crate::options::read_word(source, $words_name, &[$($known),+], &mut self.$words)?;)*
                let _ = source;
                Ok(())
            }
        }
    };

    (@check $given:ident $form:tt $spec_name:tt plain $name:ident) => {
        $form.check($spec_name, &$crate::options::Value::shown(&$given.$name))?
    };
    (@check $given:ident $form:tt $spec_name:tt $($other:tt)+) => {};
    (@shown $defaults:ident plain $name:ident) => { $crate::options::Value::shown(&$defaults.$name) };
    (@shown $defaults:ident words $name:ident [$($known:tt),+]) => {
        $crate::options::shown_word(&[$($known),+], &$defaults.$name)
    };
    (@shown $defaults:ident none) => { $crate::options::Shown::Unset };
}

#[cfg(test)]
#[allow(unreachable_pub)]
mod tests {
    use super::*;

    crate::options! {
        /// Options of a test.
        #[derive(Debug, PartialEq)]
        struct Options prefix "a_" {
            /// Text of
            /// two lines.
            option flag: bool = true => FLAG.common();
            /// Limit.
            option limit: Option<Duration> = Some(Duration::from_millis(1500)) => DURATION;
            /// Number.
            option number: u16 = 7 => whole(0, 65535);
            /// Name.
            option name: Option<String> = None => TEXT.secret();
            /// Word.
            words word: u8 = 2 => of ["one" = 1, "two" = 2] WORD;
            /// Renamed.
            words kind as "type": u8 = 1 => of ["one" = 1] WORD.unset();
            /// Read by the bindings.
            custom own: f64 = 0.5 => own("half").number(5).at_limit("Full.");
            /// Of the bindings.
            row face => FLAG.flag(false).face();
            /// Of the engine.
            field hidden: u8 = 3;
        }
    }

    struct Given(&'static [(&'static str, Shown)]);

    impl Given {
        fn get(&self, name: &str) -> Option<&Shown> {
            self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
        }
    }

    impl Source for Given {
        type Error = String;

        fn invalid(&self, name: &str, text: String) -> String {
            format!("{name}: {text}")
        }

        fn flag(&self, name: &str) -> Result<Option<bool>, String> {
            Ok(self.get(name).map(|value| *value == Shown::Flag(true)))
        }

        fn whole(&self, name: &str) -> Result<Option<i64>, String> {
            Ok(self.get(name).map(|value| if let Shown::Whole(number) = value { *number } else { -1 }))
        }

        fn duration(&self, name: &str) -> Result<Option<Duration>, String> {
            Ok(self.whole(name)?.map(|seconds| Duration::from_secs(seconds as u64)))
        }

        fn text(&self, name: &str) -> Result<Option<String>, String> {
            Ok(self.get(name).map(|value| {
                if name == "type" || name == "a_word" { "two".into() } else { format!("{value:?}") }
            }))
        }

        fn bytes(&self, _: &str) -> Result<Option<Vec<u8>>, String> {
            Ok(None)
        }

        fn pairs(&self, _: &str) -> Result<Option<Vec<(String, String)>>, String> {
            Ok(None)
        }
    }

    #[test]
    fn a_declaration_gives_defaults_and_specs() {
        let specs = Options::specs();
        let names: Vec<_> = specs.iter().map(|spec| spec.name).collect();
        assert_eq!(names, ["a_flag", "a_limit", "a_number", "a_name", "a_word", "type", "a_own", "a_face"]);
        let defaults: Vec<_> = specs.iter().map(|spec| spec.default.clone()).collect();
        assert_eq!(
            defaults,
            [
                Shown::Flag(true),
                Shown::Seconds(1.5),
                Shown::Whole(7),
                Shown::Unset,
                Shown::Text("two".into()),
                Shown::Unset,
                Shown::Whole(5),
                Shown::Flag(false),
            ]
        );
        assert_eq!((specs[0].text, specs[0].level), ("Text of two lines.", Level::Common));
        assert_eq!(specs[4].kind, Kind::Words(&["one", "two"]));
        assert_eq!((specs[3].secret, specs[7].face, specs[6].at_limit), (true, true, "Full."));
        assert_eq!(Options::default().hidden, 3);
    }

    #[test]
    fn options_that_are_given_are_read() {
        let mut read = Options { word: 1, ..Options::default() };
        let given = [("a_flag", Shown::Flag(false)), ("a_limit", Shown::Whole(0)), ("a_word", Shown::Unset)];
        assert_eq!(read.read(&Given(given.to_vec().leak())), Ok(()));
        assert_eq!(read, Options { flag: false, limit: None, word: 2, ..Options::default() });
    }

    #[test]
    fn values_beyond_the_limits_are_refused() {
        assert!(Options::default().check().is_ok());
        let form = DURATION.least(Duration::from_millis(100));
        let text =
            |seconds| form.check("pause", &Shown::Seconds(seconds)).map_err(|e| e.message().to_owned());
        assert_eq!(text(0.1), Ok(()));
        assert_eq!(text(0.0), Err("pause is 0 s: use at least 0.1 s".into()));
        assert_eq!(text(1e10), Err("pause is 10000000000 s: use at most 1000000000 s".into()));
        let forever = Options { limit: Some(Duration::MAX), ..Options::default() };
        assert!(forever.check().is_err_and(|error| error.message().starts_with("a_limit is 1844")));
        let text = whole(1, 9).check("n", &Shown::Whole(0)).unwrap_err();
        assert_eq!(text.message(), "n is 0: use 1 to 9");
    }

    #[test]
    fn a_number_or_a_word_that_does_not_fit_is_refused() {
        let mut read = Options::default();
        let error = read.read(&Given(&[("a_number", Shown::Whole(65_536))]));
        assert_eq!(error, Err("a_number: 65536, which is out of range".into()));
        let error = read.read(&Given(&[("type", Shown::Unset)]));
        assert_eq!(error, Err("type: \"two\": use one of one".into()));
    }
}
