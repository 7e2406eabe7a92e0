//! The fuzz targets without a fuzzer: each plays what was recorded and mutations of that, the same
//! ones each time, for `FUZZ_SECONDS` (1 unless told). It shares the build of the other tests, so
//! that the targets are compiled and held to their limits in each run. What looks for inputs that
//! reach new code is `make fuzz`.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Most that an input may allocate at once, in bytes: what a peer claims may be far more. Brokers
/// with megabytes of input from several clients take up to 360 MiB.
const HEAP: u64 = 512 << 20;
/// Longest input, in bytes.
const LENGTH: usize = 16 << 10;

type Corpus = HashMap<String, Vec<Vec<u8>>>;

/// The inputs that `fuzz/seed.py` makes of the recorded traffic, by target.
fn corpus() -> &'static Corpus {
    static CORPUS: OnceLock<Corpus> = OnceLock::new();
    CORPUS.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let seed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seed.py");
        let status = Command::new("python3").arg(seed).arg(folder.path()).status();
        assert!(status.expect("python3 is needed, as for the other tests").success());
        let children = |path: &Path| {
            let mut paths: Vec<_> = path.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
            paths.sort();
            paths
        };
        let read = |target: &Path| children(target).iter().map(|path| std::fs::read(path).unwrap()).collect();
        let name = |target: &Path| target.file_name().unwrap().to_string_lossy().into_owned();
        children(folder.path()).iter().map(|target| (name(target), read(target))).collect()
    })
}

/// A change of an input. Places are parts of its length.
#[derive(Clone, Debug)]
enum Edit {
    Flip(Index, u8),
    Replace(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, u8),
    /// Repeats up to so many bytes from one place at another.
    Copy(Index, Index, u8),
    /// Goes on with another input, from a place of that.
    Splice(Index, Index, Index),
    End(Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<Index>;
    prop_oneof![
        (at(), 0..8u8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        (at(), any::<u8>()).prop_map(|(at, byte)| Edit::Replace(at, byte)),
        (at(), prop_oneof![Just(0), Just(0x7f), Just(0x80), Just(0xff)])
            .prop_map(|(at, byte)| Edit::Replace(at, byte)),
        (at(), vec(any::<u8>(), 1..9)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (at(), 1..64u8).prop_map(|(at, count)| Edit::Remove(at, count)),
        (at(), at(), 1..64u8).prop_map(|(from, to, count)| Edit::Copy(from, to, count)),
        (at(), at(), at()).prop_map(|(at, other, from)| Edit::Splice(at, other, from)),
        at().prop_map(Edit::End),
    ]
}

fn apply(input: &mut Vec<u8>, edit: &Edit, inputs: &[Vec<u8>]) {
    let length = input.len();
    // One more than there are bytes: behind the last one.
    let place = |index: &Index| index.index(length + 1);
    let until = |from: usize, count: u8| length.min(from + usize::from(count));
    match edit {
        Edit::Flip(at, bit) => input.get_mut(place(at)).into_iter().for_each(|byte| *byte ^= 1 << bit),
        Edit::Replace(at, to) => input.get_mut(place(at)).into_iter().for_each(|byte| *byte = *to),
        Edit::Insert(at, bytes) => {
            input.splice(place(at)..place(at), bytes.iter().copied());
        }
        Edit::Remove(at, count) => {
            input.drain(place(at)..until(place(at), *count));
        }
        Edit::Copy(from, to, count) => {
            let bytes = input[place(from)..until(place(from), *count)].to_vec();
            input.splice(place(to)..place(to), bytes);
        }
        Edit::Splice(at, other, from) => {
            let other = &inputs[other.index(inputs.len())];
            input.truncate(place(at));
            input.extend_from_slice(&other[from.index(other.len() + 1)..]);
        }
        Edit::End(at) => input.truncate(place(at)),
    }
    input.truncate(LENGTH);
}

/// Prints the input if the target panics.
struct Shown<'a>(&'a str, &'a [u8]);

impl Drop for Shown<'_> {
    #[allow(clippy::print_stderr, reason = "the input that the test failed with")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input of {}, in base64: {}", self.0, STANDARD.encode(self.1));
        }
    }
}

fn play(name: &str, target: fn(&[u8]), input: &[u8]) {
    let _shown = Shown(name, input);
    let heap = allocation_counter::measure(|| target(input));
    assert!(heap.bytes_max <= HEAP, "{} bytes were allocated at once", heap.bytes_max);
}

fn hold(name: &str, target: fn(&[u8])) {
    let seconds = std::env::var("FUZZ_SECONDS").map_or(1, |text| text.parse().expect("whole seconds"));
    let end = Instant::now() + Duration::from_secs(seconds);
    let inputs = corpus().get(name).expect("fuzz/seed.py has inputs of each target");
    inputs.iter().for_each(|input| play(name, target, input));
    let mut runner =
        TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let strategy = (any::<Index>(), vec(edit(), 1..8));
    while Instant::now() < end {
        let (from, edits) = strategy.new_tree(&mut runner).expect("nothing is filtered").current();
        let mut input = inputs[from.index(inputs.len())].clone();
        edits.iter().for_each(|edit| apply(&mut input, edit, inputs));
        play(name, target, &input);
    }
}

macro_rules! tests {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            hold(stringify!($name), forebay_fuzz::targets::$name::play);
        })*
    };
}

forebay_fuzz::for_each_target!(tests);
