//! Blocks of points spread over threads: a strip of neighbours for each, and help for those who are behind.
//!
//! As in cuda/host/launch.cpp, which says why.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// The blocks of a strip that nobody has taken, its first in the upper half and its end in the lower one: one word, so
/// that no block is taken twice. A cache line each, as its owner writes it all the time.
#[repr(align(64))]
struct Strip(AtomicU64);

impl Strip {
    fn new(blocks: Range<u64>) -> Self {
        Self(AtomicU64::new(blocks.start << 32 | blocks.end))
    }

    /// The next block for the owner, the last one for a helper.
    fn take(&self, owner: bool) -> Option<u32> {
        let mut left = self.0.load(Ordering::Relaxed);
        loop {
            let (first, end) = ((left >> 32) as u32, left as u32);
            if first >= end {
                return None;
            }
            let (block, rest) = if owner {
                (first, left + (1 << 32))
            } else {
                (end - 1, left - 1)
            };
            match self
                .0
                .compare_exchange_weak(left, rest, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Some(block),
                Err(found) => left = found,
            }
        }
    }
}

/// Call `work` once for each of `blocks` blocks, on at most `threads` threads, this one among them.
pub fn spread(blocks: u32, threads: u32, work: impl Fn(u32) + Sync) {
    let (blocks, count) = (u64::from(blocks), u64::from(threads.clamp(1, blocks.max(1))));
    let strips: Vec<Strip> = (0..count)
        .map(|k| Strip::new(k * blocks / count..(k + 1) * blocks / count))
        .collect();
    let run = |own: usize| {
        for k in 0..strips.len() {
            let strip = &strips[(own + k) % strips.len()];
            while let Some(block) = strip.take(k == 0) {
                work(block);
            }
        }
    };
    thread::scope(|scope| {
        let run = &run;
        for own in 1..strips.len() {
            // No more threads to be had: those that run take the strips of those that do not.
            if thread::Builder::new().spawn_scoped(scope, move || run(own)).is_err() {
                break;
            }
        }
        run(0);
    });
}
