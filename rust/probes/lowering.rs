//! One scoped atomic operation a build, chosen by --cfg irr_probe="NAME": what a revision of cuda-oxide makes of it.
//!
//! Before the change in patches/series.toml each became an LLVM instruction that libNVVM refuses
//! (harness/build/lowering.py asks it). One a build, because the first refusal hides the others.

#![no_std]

use cuda_device::atomic::{AtomicOrdering, DeviceAtomicI32};
use cuda_device::kernel;

/// What `#[kernel]` wants of cuda-oxide's host crate (see rust/oxide/src/lib.rs).
pub mod cuda_host {
    pub trait CudaKernel {
        const PTX_NAME: &'static str;
    }
}

/// # Safety
/// Both pointers are valid.
#[kernel]
pub unsafe fn probe(cell: *mut i32, out: *mut i32) {
    let atomic = unsafe { DeviceAtomicI32::from_ptr(cell) };
    #[cfg(irr_probe = "load-relaxed")]
    let value = atomic.load(AtomicOrdering::Relaxed);
    #[cfg(irr_probe = "load-acquire")]
    let value = atomic.load(AtomicOrdering::Acquire);
    #[cfg(irr_probe = "load-seqcst")]
    let value = atomic.load(AtomicOrdering::SeqCst);
    #[cfg(irr_probe = "add-relaxed")]
    let value = atomic.fetch_add(1, AtomicOrdering::Relaxed);
    #[cfg(irr_probe = "add-acqrel")]
    let value = atomic.fetch_add(1, AtomicOrdering::AcqRel);
    #[cfg(irr_probe = "add-seqcst")]
    let value = atomic.fetch_add(1, AtomicOrdering::SeqCst);
    #[cfg(irr_probe = "store-relaxed")]
    let value = {
        atomic.store(1, AtomicOrdering::Relaxed);
        0
    };
    #[cfg(irr_probe = "store-release")]
    let value = {
        atomic.store(1, AtomicOrdering::Release);
        0
    };
    #[cfg(irr_probe = "store-seqcst")]
    let value = {
        atomic.store(1, AtomicOrdering::SeqCst);
        0
    };
    unsafe { *out = value }
}
