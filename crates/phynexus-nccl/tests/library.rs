//! NCCL itself, without a GPU: `NCCL_FOLDER=... cargo test -p phynexus-nccl --test library -- --ignored`.

use std::{ffi::c_void, path::PathBuf, thread, time::Duration};

use phynexus::{
    DType, Error, Result,
    distributed::{Group, threads},
    kernel::step::{Library as LibraryStep, Operand, Step},
    op::{Collective, CollectiveKind, Combine, Loss, Op, ir::IrNode},
    shape::Layout,
};
use phynexus_nccl::{Endpoint, Library, Routine, Vendor};

fn library() -> Result<&'static Library, String> {
    let folder = std::env::var_os("NCCL_FOLDER").map(PathBuf::from);
    Library::open(Vendor::Nvidia, folder.as_slice())
}

/// A GPU that CUDA does not have.
struct Missing(u32);

impl Endpoint for Missing {
    fn name(&self) -> &str {
        "missing:0"
    }
    fn vendor(&self) -> Vendor {
        Vendor::Nvidia
    }
    fn library(&self) -> Result<&'static Library, String> {
        library()
    }
    fn unique_number(&self) -> Result<[u8; 16]> {
        Ok([self.0 as u8; 16])
    }
    fn ordinal(&self) -> u32 {
        self.0
    }
    fn bind(&self) -> Result<()> {
        Ok(())
    }
    fn share(&self, _: &[u32]) -> Result<()> {
        Ok(())
    }
    unsafe fn zero(&self, _: u64, _: usize, _: *mut c_void) -> Result<()> {
        Ok(())
    }
}

#[test]
#[ignore = "needs NCCL, in NCCL_FOLDER or where the loader finds it"]
fn every_function_is_there() {
    let (major, minor, _) = library().unwrap().version();
    assert!((major, minor) >= (2, 18));
}

/// Where there are GPUs, both ranks are on the current one, which NCCL refuses.
#[test]
#[ignore = "needs NCCL, in NCCL_FOLDER or where the loader finds it"]
fn ranks_without_gpus_refuse_for_the_same_reason() {
    let ranks = threads(2, Duration::from_secs(60)).into_iter().map(|transport| {
        thread::spawn(move || {
            let group = Group::open(transport);
            let kind = CollectiveKind::AllReduce(Combine::Sum, Loss::Summed);
            let op = Op::Collective(Collective::new(kind, group.member()));
            let node = IrNode { op, dtype: DType::F32, shape: [4][..].into(), inputs: Default::default() };
            let operands = vec![Operand { dtype: DType::F32, layout: Layout::contiguous(&[4]) }];
            let step = Step::Library(LibraryStep { node, operands, epilogue: None });
            let refused = Routine::of(&Missing(group.rank() as u32), &step).map(drop);
            group.close();
            refused
        })
    });
    let ranks: Vec<_> = ranks.collect();
    let reason = |refused| match refused {
        Err(Error::Unsupported { message, .. }) => message,
        other => panic!("{other:?}"),
    };
    let reasons: Vec<String> = ranks.into_iter().map(|rank| reason(rank.join().unwrap())).collect();
    println!("{}", reasons[0]);
    assert_eq!(reasons[0], reasons[1]);
    assert!(reasons[0].starts_with("rank 0: NCCL does not start: "), "{}", reasons[0]);
}
