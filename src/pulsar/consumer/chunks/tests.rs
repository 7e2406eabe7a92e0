use super::*;

/// Defaults of the Java client.
const TIMEOUT: Duration = Duration::from_secs(60);
const OPEN: usize = 10;

fn chunk(uuid: &str, id: i32, count: i32, total: i32) -> pb::MessageMetadata {
    pb::MessageMetadata {
        uuid: Some(uuid.into()),
        chunk_id: Some(id),
        num_chunks_from_msg: Some(count),
        total_chunk_msg_size: Some(total),
        ..Default::default()
    }
}

fn body(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

#[test]
fn interleaved_messages_come_together() {
    let (mut chunks, now) = (Chunks::new(Limits::default(), true), Instant::now());
    assert_eq!(chunks.take(now, &chunk("a", 0, 2, 4), (1, 0), &body("ab")), Chunk::Kept);
    assert_eq!(chunks.take(now, &chunk("b", 0, 2, 2), (1, 1), &body("x")), Chunk::Kept);
    assert_eq!(
        chunks.take(now, &chunk("a", 1, 2, 4), (1, 2), &body("cd")),
        Chunk::Complete(body("abcd"), vec![(1, 0), (1, 2)])
    );
    assert_eq!(
        chunks.take(now, &chunk("b", 1, 2, 2), (1, 3), &body("y")),
        Chunk::Complete(body("xy"), vec![(1, 1), (1, 3)])
    );
    assert_eq!((chunks.held, chunks.first_held(now)), (0, None));
}

#[test]
fn gaps_repeats_and_lies_are_dropped() {
    let (mut chunks, now) = (Chunks::new(Limits::default(), true), Instant::now());
    assert_eq!(chunks.take(now, &chunk("a", 1, 2, 4), (1, 0), &body("ab")), Chunk::Stray, "no beginning");
    chunks.take(now, &chunk("a", 0, 3, 6), (1, 0), &body("ab"));
    assert_eq!(chunks.take(now, &chunk("a", 0, 3, 6), (1, 1), &body("ab")), Chunk::Kept, "it starts again");
    assert_eq!(chunks.take(now, &chunk("a", 2, 3, 6), (1, 2), &body("ef")), Chunk::Stray, "a gap");
    for lie in [chunk("c", 0, i32::MAX, 4), chunk("c", 0, 2, -1), chunk("c", -1, 2, 4), chunk("c", 5, 2, 4)] {
        assert_eq!(chunks.take(now, &lie, (1, 0), &body("ab")), Chunk::Stray);
    }
    assert_eq!(chunks.take(now, &chunk("d", 0, 1, 1), (1, 0), &body("too long")), Chunk::Stray);
    assert_eq!(chunks.held, 0);
}

#[test]
fn a_message_above_the_limit_is_told_and_others_together_are_held_below_it() {
    let (mut chunks, now) = (Chunks::new(Limits { bytes: 10, ..Limits::default() }, true), Instant::now());
    for id in 0..2 {
        assert_eq!(chunks.take(now, &chunk("large", id, 2, 11), (1, 0), &body("ab")), Chunk::TooLarge(11));
    }
    assert_eq!((chunks.held, chunks.first_held(now)), (0, None));
    chunks.take(now, &chunk("old", 0, 3, 10), (1, 1), &body("abcd"));
    chunks.take(now, &chunk("new", 0, 2, 10), (1, 2), &body("abcd"));
    assert_eq!(
        chunks.take(now, &chunk("new", 1, 2, 10), (1, 3), &body("efghij")),
        Chunk::Complete(body("abcdefghij"), vec![(1, 2), (1, 3)])
    );
    assert_eq!(chunks.take(now, &chunk("old", 1, 3, 10), (1, 4), &body("efgh")), Chunk::Stray);
    assert_eq!(chunks.held, 0);
}

#[test]
fn a_million_beginnings_hold_ten() {
    let (mut chunks, now) = (Chunks::new(Limits::default(), true), Instant::now());
    for i in 0..1000 {
        chunks.take(now, &chunk(&i.to_string(), 0, 2, 4), (1, i), &body("ab"));
    }
    assert_eq!((chunks.open.len(), chunks.held), (OPEN, 2 * OPEN));
    for i in 1000..10_000 {
        chunks.take(now, &chunk(&i.to_string(), 0, 2, 4), (1, i), &body("ab"));
    }
    assert_eq!(chunks.holds.len(), MAX_HOLDS);
}

#[test]
fn what_was_sent_again_is_acknowledged_with_the_message_once() {
    let (mut chunks, now) = (Chunks::new(Limits::default(), true), Instant::now());
    let take =
        |chunks: &mut Chunks, id, entry| chunks.take(now, &chunk("a", id, 3, 6), (1, entry), &body("ab"));
    take(&mut chunks, 0, 0);
    take(&mut chunks, 1, 1);
    // All of it from the beginning, in other entries.
    take(&mut chunks, 0, 2);
    take(&mut chunks, 1, 3);
    assert_eq!(take(&mut chunks, 1, 4), Chunk::Stray, "in another entry");
    assert_eq!(take(&mut chunks, 1, 3), Chunk::Stray, "the same entry");
    let Chunk::Complete(bytes, mut all) = take(&mut chunks, 2, 5) else { panic!("it is complete") };
    assert_eq!(bytes, body("ababab"));
    all.sort_unstable();
    assert_eq!(all, (0..6).map(|entry| (1, entry)).collect::<Vec<_>>());
}

#[test]
fn what_is_sent_again_after_its_time_is_acknowledged_with_the_message() {
    let (mut chunks, now) = (Chunks::new(Limits::default(), true), Instant::now());
    chunks.take(now, &chunk("a", 0, 2, 4), (1, 0), &body("ab"));
    chunks.expire(now + TIMEOUT);
    assert_eq!(chunks.take(now, &chunk("a", 0, 2, 4), (1, 1), &body("ab")), Chunk::Kept);
    assert_eq!(
        chunks.take(now, &chunk("a", 1, 2, 4), (1, 2), &body("cd")),
        Chunk::Complete(body("abcd"), vec![(1, 0), (1, 1), (1, 2)])
    );
    assert_eq!((chunks.held, chunks.expired_chunks, chunks.first_held(now)), (0, 0, None));
}

#[test]
fn each_chunk_may_be_sent_twice_and_a_repetition_without_end_is_bounded() {
    let (mut chunks, now) = (Chunks::new(Limits::default(), true), Instant::now());
    let (mut entry, count) = (0, 40);
    let mut last = Chunk::Kept;
    for id in (0..count).flat_map(|id| if id == 0 { vec![id] } else { vec![id, id] }) {
        let taken = chunks.take(now, &chunk("a", id, count, 2 * count), (1, entry), &body("ab"));
        entry += 1;
        if let Chunk::Complete(..) = taken {
            last = taken;
            break;
        }
    }
    let Chunk::Complete(_, entries) = last else { panic!("it is complete") };
    assert_eq!(entries.len(), entry as usize, "all of them are acknowledged");

    chunks.take(now, &chunk("b", 0, 3, 6), (1, 0), &body("ab"));
    chunks.take(now, &chunk("b", 1, 3, 6), (1, 1), &body("ab"));
    let known = chunks.open["b"].entries.len();
    chunks.open.get_mut("b").unwrap().entries.resize(2 * MAX_CHUNKS as usize - 1, (2, 0));
    assert!(known < 2 * MAX_CHUNKS as usize);
    for again in 2..5 {
        chunks.take(now, &chunk("b", 1, 3, 6), (1, again), &body("ab"));
    }
    assert_eq!(chunks.open["b"].entries.len(), 2 * MAX_CHUNKS as usize);
}

#[test]
fn the_limit_may_be_reached_and_not_exceeded() {
    let (mut chunks, now) = (Chunks::new(Limits { bytes: 10, ..Limits::default() }, true), Instant::now());
    chunks.take(now, &chunk("a", 0, 2, 6), (1, 0), &body("abcd"));
    chunks.take(now, &chunk("b", 0, 2, 8), (1, 1), &body("ghijkl"));
    assert_eq!(
        chunks.take(now, &chunk("b", 1, 2, 8), (1, 2), &body("m")),
        Chunk::Stray,
        "it is too short, and there was no room for the first any more"
    );
    assert_eq!(chunks.take(now, &chunk("a", 1, 2, 6), (1, 3), &body("ef")), Chunk::Stray);
    chunks.take(now, &chunk("a", 0, 2, 4), (1, 4), &body("ab"));
    chunks.take(now, &chunk("b", 0, 2, 10), (1, 5), &body("cdefgh"));
    assert_eq!(
        chunks.take(now, &chunk("a", 1, 2, 4), (1, 6), &body("yz")),
        Chunk::Complete(body("abyz"), vec![(1, 4), (1, 6)])
    );
    assert_eq!(chunks.held, 6);
}

#[test]
fn a_message_whose_chunks_contradict_each_other_is_dropped() {
    let (mut chunks, now) = (Chunks::new(Limits::default(), true), Instant::now());
    for (first, last) in [(4, 5), (5, 4)] {
        chunks.take(now, &chunk("size", 0, 2, first), (1, 0), &body("ab"));
        assert_eq!(chunks.take(now, &chunk("size", 1, 2, last), (1, 1), &body("cd")), Chunk::Stray);
    }
    chunks.take(now, &chunk("short", 0, 2, 5), (1, 2), &body("ab"));
    assert_eq!(chunks.take(now, &chunk("short", 1, 2, 5), (1, 3), &body("cd")), Chunk::Stray);
    assert_eq!((chunks.open.len(), chunks.held), (0, 0));
}

#[test]
fn the_oldest_message_makes_room() {
    let (mut chunks, now) = (Chunks::new(Limits::default(), true), Instant::now());
    for i in 0..100 {
        chunks.take(now, &chunk(&i.to_string(), 0, 2, 4), (1, i), &body("ab"));
    }
    for i in 90..100 {
        let last = chunks.take(now, &chunk(&i.to_string(), 1, 2, 4), (2, i), &body("cd"));
        assert_eq!(last, Chunk::Complete(body("abcd"), vec![(1, i), (2, i)]));
    }
}

#[test]
fn each_chunk_renews_the_hold_on_the_first() {
    let (mut chunks, now) = (Chunks::new(Limits::default(), true), Instant::now());
    let take = |chunks: &mut Chunks, after, id, entry| {
        let now = now + Duration::from_secs(after);
        assert_eq!(chunks.take(now, &chunk("a", id, 4, 8), (1, entry), &body("ab")), Chunk::Kept);
    };
    let held = |chunks: &mut Chunks, after| chunks.first_held(now + Duration::from_secs(after));
    take(&mut chunks, 0, 0, 7);
    take(&mut chunks, 50, 1, 8);
    assert_eq!(held(&mut chunks, 100), Some((1, 7)));
    // Also if the same entries come again.
    take(&mut chunks, 100, 0, 7);
    take(&mut chunks, 150, 1, 8);
    assert_eq!(held(&mut chunks, 200), Some((1, 7)));
    take(&mut chunks, 200, 2, 9);
    assert_eq!(held(&mut chunks, 259), Some((1, 7)));
    assert_eq!(chunks.next_lapse(), Some(now + Duration::from_secs(260)));
    assert_eq!(held(&mut chunks, 260), None);
}

#[test]
fn a_lost_connection_frees_the_pieces_and_a_seek_frees_all() {
    let (mut chunks, now) = (Chunks::new(Limits::default(), true), Instant::now());
    chunks.take(now, &chunk("a", 0, 2, 4), (1, 0), &body("ab"));
    chunks.drop_pieces();
    assert_eq!((chunks.held, chunks.first_held(now)), (0, Some((1, 0))));
    assert_eq!(chunks.take(now, &chunk("a", 1, 2, 4), (1, 1), &body("cd")), Chunk::Stray);
    chunks.take(now, &chunk("a", 0, 2, 4), (1, 0), &body("ab"));
    chunks.clear();
    assert_eq!((chunks.held, chunks.first_held(now)), (0, None));
    assert_eq!(chunks.take(now, &chunk("a", 1, 2, 4), (1, 1), &body("cd")), Chunk::Stray);
}

#[test]
fn chunks_whose_beginning_does_not_come_are_orphans() {
    let (mut chunks, now) = (Chunks::new(Limits::default(), true), Instant::now());
    let late = now + TIMEOUT;
    for (id, entry) in [(1, 0), (1, 0), (2, 1)] {
        assert_eq!(chunks.take(now, &chunk("a", id, 3, 6), (1, entry), &body("ab")), Chunk::Stray);
    }
    assert_eq!(chunks.next_orphan(), Some(late));
    assert_eq!(chunks.lapsed_orphans(late - Duration::from_millis(1)), []);
    assert_eq!(chunks.lapsed_orphans(late), [(1, 0), (1, 1)], "each once");
    assert_eq!((chunks.lapsed_orphans(late), chunks.next_orphan()), (vec![], None));
}

#[test]
fn chunks_whose_beginning_can_come_again_are_no_orphans() {
    let now = Instant::now();
    let late = now + TIMEOUT;
    let stray = |chunks: &mut Chunks, uuid: &str| {
        assert_eq!(chunks.take(now, &chunk(uuid, 2, 4, 8), (1, 9), &body("ab")), Chunk::Stray);
    };
    let mut out_of_order = Chunks::new(Limits::default(), false);
    stray(&mut out_of_order, "a");
    assert_eq!(out_of_order.lapsed_orphans(late), [], "the beginning may be on its way");

    let mut begins = Chunks::new(Limits::default(), true);
    stray(&mut begins, "a");
    begins.take(now, &chunk("a", 0, 4, 8), (1, 7), &body("ab"));
    assert_eq!(begins.lapsed_orphans(late), [], "the beginning has come");

    let mut gap = Chunks::new(Limits::default(), true);
    gap.take(now, &chunk("a", 0, 4, 8), (1, 7), &body("ab"));
    stray(&mut gap, "a");
    stray(&mut gap, "a");
    assert_eq!(gap.lapsed_orphans(late), [], "the beginning came and was dropped");

    let mut crowded = Chunks::new(Limits::default(), true);
    for i in 0..=OPEN as u64 {
        crowded.take(now, &chunk(&i.to_string(), 0, 4, 8), (1, i), &body("ab"));
    }
    stray(&mut crowded, "0");
    assert_eq!(crowded.lapsed_orphans(late), [], "the beginning made room for another");

    let mut disconnected = Chunks::new(Limits::default(), true);
    stray(&mut disconnected, "a");
    disconnected.drop_pieces();
    assert_eq!(disconnected.lapsed_orphans(late), [], "it comes again");
}

#[test]
fn orphans_are_bounded() {
    let (mut chunks, now) = (Chunks::new(Limits::default(), true), Instant::now());
    let long = "u".repeat(MAX_UUID + 1);
    chunks.take(now, &chunk(&long, 1, 2, 4), (2, 0), &body("ab"));
    for entry in 0..2 * MAX_ORPHANS as u64 {
        chunks.take(now, &chunk("a", 1, 2, 4), (1, entry), &body("ab"));
    }
    let orphans = chunks.lapsed_orphans(now + TIMEOUT);
    assert_eq!(orphans, (0..MAX_ORPHANS as u64).map(|entry| (1, entry)).collect::<Vec<_>>());
    // Once it is not known what was dropped, nothing is an orphan.
    for i in 0..MAX_DROPPED as u64 {
        chunks.take(now, &chunk(&i.to_string(), 0, 4, 8), (3, i), &body("ab"));
        chunks.take(now, &chunk(&i.to_string(), 2, 4, 8), (3, i), &body("ab"));
    }
    chunks.take(now, &chunk("b", 1, 2, 4), (4, 0), &body("ab"));
    assert_eq!((chunks.dropped.len(), chunks.orphans.len()), (MAX_DROPPED, 0));
}

#[test]
fn ids_of_messages_without_bytes_are_bounded_without_a_limit_on_their_number() {
    let limits = Limits { messages: 0, ..Limits::default() };
    let (mut chunks, now) = (Chunks::new(limits, true), Instant::now());
    let long = "u".repeat(1 << 20);
    for i in 0..100 {
        chunks.take(now, &chunk(&format!("{i}{long}"), 0, 2, 4), (1, i), &body(""));
    }
    assert_eq!((chunks.open.len(), chunks.counts), (15, (85, 0)));
    assert!(chunks.names <= MAX_NAMES);
    for i in 0..70_000 {
        chunks.take(now, &chunk(&i.to_string(), 0, 2, 4), (2, i), &body(""));
    }
    assert!(chunks.names <= MAX_NAMES && chunks.open.len() < MAX_NAMES / NAME);
    chunks.drop_pieces();
    assert_eq!((chunks.names, chunks.ages.len(), chunks.due.len()), (0, 0, 0));
}

#[test]
fn what_is_known_of_expired_messages_is_bounded() {
    let (mut chunks, now) = (Chunks::new(Limits::default(), false), Instant::now());
    for i in 0..3000_u32 {
        let now = now + TIMEOUT * i;
        chunks.expire(now);
        chunks.take(now, &chunk(&i.to_string(), 0, 2, 4), (1, u64::from(i)), &body("ab"));
    }
    assert_eq!((chunks.counts, chunks.given_up.len()), ((0, 2999), MAX_EXPIRED));
    assert_eq!((chunks.expired_chunks, chunks.dropped.len()), (MAX_EXPIRED, MAX_DROPPED));
    let again = chunks.take(now, &chunk("7", 1, 2, 4), (2, 0), &body("cd"));
    assert_eq!(again, Chunk::Again(vec![(1, 7), (2, 0)]));
    assert_eq!((chunks.expired_chunks, chunks.given_up.len()), (MAX_EXPIRED - 1, MAX_EXPIRED - 1));
}
